"""A Jupyter server of its own and notebooks in it, driven by a program in place of a browser: for the notebook demo and
for ``agent-kernel eval``. The caller decides what runs in the notebooks."""

"""Runs a temporary Jupyter server and notebooks on it, controlled by a program instead of a browser. The notebook demo
and ``agent-kernel eval`` use it. The caller decides what runs in the notebooks."""

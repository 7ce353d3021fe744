"""The notebook side: the ``%%agent`` and ``%agent`` magics and the modules that they need. All of it runs in the user's
kernel.

Uses the standard library and IPython only (``panel`` also anywidget), and imports little: every module here adds to the
start-up time of a kernel. Plain values are a ``NamedTuple``, which Python defines in a fifth of the time of a frozen
dataclass. ``magic/cell_turns.py``, with the modules that only it needs, is loaded at the first turn or command."""

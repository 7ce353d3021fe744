"""The notebook surface: the ``%%agent`` and ``%agent`` magics, run inside a person's kernel.

Standard library and IPython only, and cheap to load: a kernel pays for every import here at its start.
"""

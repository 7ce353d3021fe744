"""The ``%agent`` and ``%%agent`` magics: one module for each group of commands. The turn itself is in
``notebook/turn``.
"""

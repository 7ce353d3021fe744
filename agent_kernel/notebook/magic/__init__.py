"""The commands of ``%agent`` and ``%%agent``."""

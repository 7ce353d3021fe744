"""Stored conversations: how turns are written, serialized, merged and matched. Databases are in ``store`` and
``tables``.
"""

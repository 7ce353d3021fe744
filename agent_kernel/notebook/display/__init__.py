"""Displays a turn in a notebook cell or a terminal: text, tables, media, status lines."""

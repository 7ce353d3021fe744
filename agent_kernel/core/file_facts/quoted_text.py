"""Shortens texts of a file, so that each fits into one line of a description and cannot pass for a fact about the
file."""

from __future__ import annotations

CELL = 60
"""Maximum number of characters of a cell or a label that is quoted."""


def one_line(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\t" else " " for char in text)


def shorten(text: str, limit: int = CELL) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."

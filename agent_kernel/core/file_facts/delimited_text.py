"""Recognises the form of a text with the rows of a table: its delimiter, the lines above its header, and whether it is
a table at all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from agent_kernel.core.file_facts.column_types import TYPED_ROWS

DELIMITERS = ",;\t|"
MAX_SKIPPED = 10
"""Maximum number of lines before the header of a table that are recognised as a title."""


def separator_of(lines: Sequence[str]) -> str:
    """Return the delimiter that occurs the same number of times in most lines; the comma if no delimiter does."""

    def regularity(mark: str) -> tuple[int, int]:
        counts = Counter(line.count(mark) for line in lines[:TYPED_ROWS] if mark in line)
        return max(((often, count) for count, often in counts.items()), default=(0, 0))

    return max(DELIMITERS, key=regularity)


def title_lines(numbered: Sequence[tuple[int, Sequence[Any]]]) -> int:
    """Return the number of title lines before the header of a table. ``numbered`` are the numbers of its lines, from 1,
    and their cells. A title line has fewer cells than nearly all other rows."""
    widths = Counter(len(row) for _, row in numbered)
    width, often = widths.most_common(1)[0]
    at = next(at for at, (_, row) in enumerate(numbered) if len(row) >= width)
    if not 0 < at <= MAX_SKIPPED or width < 2 or often < len(numbered) - at - 1:
        return 0
    return numbered[at - 1][0]


def is_delimited(text: str) -> bool:
    """Return whether the lines of a text are the rows of a table: they have the same number of tabs, semicolons or
    bars, and the first line has a different label in each cell."""
    lines = [line for line in text.splitlines()[:TYPED_ROWS] if line.strip()]
    separator = separator_of(lines)
    counts = {line.count(separator) for line in lines}
    labels = [cell.strip() for cell in lines[0].split(separator)] if lines else []
    return len(lines) > 2 and separator != "," and len(counts) == 1 and 0 not in counts and _are_labels(labels)


def _are_labels(cells: Sequence[str]) -> bool:
    return len(set(cells)) == len(cells) and all(re.match(r"[^\W\d]", cell) for cell in cells)

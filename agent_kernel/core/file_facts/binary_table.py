"""Describes a workbook or a parquet file by what a library read of it: the sheets and first rows, or the columns.

A kernel reads the files that a prompt names itself; for the files that go with a message, the server has a separate
process for it (``tools.files.document_worker``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from agent_kernel.core.file_facts.column_types import column_type
from agent_kernel.core.file_facts.text_file import (
    MAX_COLUMNS,
    NUMBERS,
    ROWS,
    FileFacts,
    amounts_of,
    conversions_of,
    extension_of,
    one_line,
    reads_by,
    shorten,
    title_lines,
)

BY_PANDAS = {"parquet": "read_parquet", "xlsx": "read_excel", "xlsm": "read_excel", "xls": "read_excel"}
ARROW_NUMBER = re.compile(r"u?int|float|double|decimal")
"""Matches the beginning of the names of Arrow's types of numbers."""


def reads_by_pandas(name: str, *options: str) -> str:
    """Return the text that states how pandas reads the file ``name``, whose extension is one of ``BY_PANDAS``."""
    return reads_by(f"pd.{BY_PANDAS[extension_of(name)]}({', '.join([repr(name), *options])})")


def workbook_facts(name: str, sheets: Sequence[str], rows: Sequence[Sequence[Any]]) -> FileFacts:
    """Return the facts about a workbook. ``sheets`` are the names of its sheets, and ``rows`` the cells of the first
    rows of the first sheet, whose first row is the header unless rows with a title are above it."""
    rows = [row[:MAX_COLUMNS] for row in rows]
    numbered = [(number, cells) for number, row in enumerate(rows, start=1) if (cells := _without_empty_end(row))]
    title = title_lines(numbered) if numbered else 0
    # Unlike a table of text, a workbook keeps the empty rows below its title.
    skipped = next((number - 1 for number, _ in numbered if number > title), 0) if title else 0
    labels, body = (rows[skipped], rows[skipped + 1 :]) if rows else ([], [])
    columns = [[row[at] if at < len(row) else None for row in body] for at in range(len(labels))]
    first_lines = [one_line(",".join(_cell_text(cell) for cell in row)) for row in rows[skipped : skipped + ROWS + 1]]
    options = [f"skiprows={skipped}"] if skipped else []
    contents = one_line(f"{reads_by_pandas(name, *options)}, sheets: {', '.join(map(shorten, sheets))}")
    kinds = [column_type([str(cell) for cell in column if cell is not None]) for column in columns]
    numbers = [label for label, kind in zip(labels, kinds, strict=True) if kind in NUMBERS]
    conversions = conversions_of(name, labels, columns) + amounts_of(name, numbers)
    return FileFacts("table", contents, first_lines, (), conversions)


def parquet_facts(name: str, described: str, columns: Iterable[tuple[str, str]]) -> FileFacts:
    """Return the facts about a parquet file. ``described`` states its numbers of rows and columns and lists the
    columns; ``columns`` has their names and types."""
    numbers = [label for label, kind in columns if ARROW_NUMBER.match(kind)]
    return FileFacts("table", one_line(f"{reads_by_pandas(name)}, {described}"), conversions=amounts_of(name, numbers))


def _cell_text(cell: Any) -> str:
    return "" if cell is None else shorten(str(cell))


def _without_empty_end(row: Sequence[Any]) -> list[Any]:
    width = max((at + 1 for at, cell in enumerate(row) if cell not in (None, "")), default=0)
    return list(row[:width])

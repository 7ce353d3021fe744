"""Describes a workbook by the first rows of its sheets: how code reads it, its columns, their types and their values.

Sheets with the same columns, such as one for each month, are read as one table. A title above the header and a row with
totals below the last row are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agent_kernel.core.file_facts.binary_table import reads_by_pandas
from agent_kernel.core.file_facts.column_types import MISSING, column_type, describe_values
from agent_kernel.core.file_facts.delimited_text import title_lines
from agent_kernel.core.file_facts.quoted_text import one_line, shorten
from agent_kernel.core.file_facts.table_keys import key_columns
from agent_kernel.core.file_facts.text_columns import pandas_names
from agent_kernel.core.file_facts.text_file import (
    MAX_COLUMNS,
    NUMBERS,
    ROWS,
    FileFacts,
    amounts_of,
    conversions_of,
)

MAX_SHEETS = 60
"""Maximum number of sheets of which the rows are examined."""
MAX_OTHERS = 5
"""Maximum number of sheets beside the first one whose columns are listed."""
WHOLE_SHEET = 2_000
"""Sheets with at most this many rows are read whole. Only then are their rows counted and a row with totals found."""
OF_SHEETS = re.compile(r"\bsheets? (?:per|for each|for every|of each) ([A-Za-z]\w{2,20})\b", re.IGNORECASE)
"""Finds what each sheet of a workbook is for."""
TOTALS = re.compile(
    r"(?:grand |sub)?-?totals?\b|sum\b|overall\b|all\b|summe\b|gesamt\w*\b|insgesamt\b|total général|somme\b|suma\b",
    re.IGNORECASE,
)
"""Matches the beginning of the first cell of a row with totals."""
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
"""Matches the form of ``str(datetime)``, which the document reader makes of a cell with a date."""


class Sheet(NamedTuple):
    """The first rows of a sheet, each with its cells. ``whole`` is True if the sheet has no other rows."""

    rows: Sequence[Sequence[Any]]
    whole: bool


class SheetTable(NamedTuple):
    """The table of a sheet: its labels and rows without the title and the totals. ``options`` are the arguments with
    which pandas leaves these out."""

    labels: list[str]
    rows: list[list[Any]]
    options: tuple[str, ...]
    whole: bool


def workbook_facts(name: str, sheets: Mapping[str, Sheet], prompt: str = "") -> FileFacts:
    """Return the facts about a workbook. ``sheets`` maps the names of its sheets to their rows. The facts describe the
    first sheet, or all sheets with the columns of the first one as one table, whose first column is the name of the
    sheet. The label of this column is what ``prompt``, the question about the workbook, says of the sheets ("one sheet
    per country"). ``name`` is the name by which code opens the workbook, which may have no sheet with cells."""
    tables = {sheet: _table_of(rows) for sheet, rows in list(sheets.items())[:MAX_SHEETS]}
    if not tables:
        return FileFacts("table", reads_by_pandas(name))
    first = next(iter(tables.values()))
    alike = [sheet for sheet, table in tables.items() if table.labels == first.labels and first.labels]
    # Some sheets may not have been read.
    are_known = all(table.labels or table.whole for table in tables.values()) and len(sheets) <= MAX_SHEETS
    listed = f", sheets: {', '.join(map(shorten, sheets))}"
    if len(alike) > 1 and are_known and len({tables[sheet].options for sheet in alike}) == 1:
        said = OF_SHEETS.search(prompt)
        wanted = said[1].lower() if said else "sheet"
        label = wanted if wanted not in first.labels else "sheet_name"
        rows = [[sheet, *row] for sheet in alike for row in tables[sheet].rows]
        whole = all(tables[sheet].whole for sheet in alike)
        chosen = "None" if len(alike) == len(sheets) else repr(alike)
        reads = reads_by_pandas(name, f"sheet_name={chosen}", *first.options)
        reads = reads.replace("pd.", "pd.concat(pd.", 1)
        reads += f", names=[{label!r}]).reset_index({label!r}).reset_index(drop=True)"
        return _facts(name, reads, SheetTable([label, *first.labels], rows, (), whole), listed)
    facts = _facts(name, reads_by_pandas(name, *first.options), first, listed)
    others, keys = [], list(facts.keys)
    for sheet, table in list(tables.items())[1 : 1 + MAX_OTHERS]:
        reads = reads_by_pandas(name, f"sheet_name={sheet!r}", *table.options)
        others.append(one_line(f"sheet {shorten(sheet)} {reads}: {', '.join(map(shorten, table.labels))}"))
        keys += _facts(name, reads, table, "", called=sheet).keys
    return facts._replace(values=[*facts.values, *others], keys=keys)


def _facts(name: str, reads: str, table: SheetTable, listed: str, *, called: str = "") -> FileFacts:
    """Return the facts about the table that the expression ``reads`` reads. ``listed`` names the sheets. Code reads the
    table to a variable with the name of the workbook, or with the name ``called`` of the sheet."""
    columns = [[row[at] if at < len(row) else None for row in table.rows] for at in range(len(table.labels))]
    cells = [["" if cell is None else str(cell) for cell in column] for column in columns]
    kinds = ["date" if _is_date(column) else column_type(text) for column, text in zip(columns, cells, strict=True)]
    kinds = ["str" if kind == "day first" else kind for kind in kinds]
    described = ", ".join(f"{shorten(label)} {kind}" for label, kind in zip(table.labels, kinds, strict=True))
    size = f"{len(table.rows)} rows x " if table.whole else ""
    contents = one_line(f"{reads}, {size}{len(table.labels)} columns: {described}{listed}")
    first_lines = [one_line(",".join(map(shorten, table.labels)))]
    first_lines += [one_line(",".join(map(shorten, row))) for row in list(zip(*cells, strict=True))[:ROWS]]
    values = [one_line(line) for line in describe_values(table.labels, cells, kinds)] if table.whole else []
    texts = [column if kind == "str" else [] for column, kind in zip(columns, kinds, strict=True)]
    numbers = [label for label, kind in zip(table.labels, kinds, strict=True) if kind in NUMBERS]
    conversions = conversions_of(name, table.labels, texts) + amounts_of(name, numbers)
    keys = key_columns(called or name, table.labels, cells, kinds) if table.whole else []
    return FileFacts("table", contents, first_lines, values, conversions, keys)


def _is_date(cells: Sequence[Any]) -> bool:
    """Return whether the cells are dates, also as texts. Missing cells do not count."""
    present = [cell for cell in cells if cell is not None and str(cell) not in MISSING]
    return bool(present) and column_type([str(cell) for cell in present]) == "date"


def _is_date_text(cells: Sequence[Any]) -> bool:
    """Return whether the cells are texts with dates, which pandas converts only if it is told to."""
    texts = [cell for cell in cells if isinstance(cell, str) and cell not in MISSING]
    return _is_date(cells) and any(not TIMESTAMP.fullmatch(text) for text in texts)


def _table_of(sheet: Sheet) -> SheetTable:
    """Return the table of a sheet without the rows above its header and without its last row if it has totals."""
    rows = [list(row[:MAX_COLUMNS]) for row in sheet.rows]
    numbered = [(number, cells) for number, row in enumerate(rows, start=1) if (cells := _without_empty_end(row))]
    if not numbered:
        return SheetTable([], [], (), sheet.whole)
    title = title_lines(numbered)
    # Unlike a table of text, a workbook keeps the empty rows below its title.
    skipped = next((number - 1 for number, _ in numbered if number > title), 0) if title else 0
    options = [f"skiprows={skipped}"] if skipped else []
    last = numbered[-1][0]
    if sheet.whole and last > skipped + 2 and TOTALS.match(_first_text(rows[last - 1])):
        options.append("skipfooter=1")
        last -= 1
    width = max(len(cells) for number, cells in numbered if number > skipped)
    header = [*rows[skipped], *[None] * width][:width]
    labels = pandas_names(["" if cell is None else str(cell) for cell in header])
    rows = rows[skipped + 1 : last]
    dates = [label for at, label in enumerate(labels) if _is_date_text([row[at] for row in rows if at < len(row)])]
    options += [f"parse_dates={dates!r}"] if dates else []
    return SheetTable(labels, rows, tuple(options), sheet.whole)


def _first_text(row: Sequence[Any]) -> str:
    """Return the first cell of a row that is not empty, if it is a text."""
    cell = next((cell for cell in row if cell not in (None, "")), None)
    return cell.strip() if isinstance(cell, str) else ""


def _without_empty_end(row: Sequence[Any]) -> list[Any]:
    width = max((at + 1 for at, cell in enumerate(row) if cell not in (None, "")), default=0)
    return list(row[:width])

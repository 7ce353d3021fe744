"""Describes a workbook by the first rows of its sheets: how code reads it, its columns, their types and their values.

Sheets with the same columns, such as one for each month, are read as one table. A title above the header, rows with
totals and empty rows are left out. A label that only the first row of a group has is repeated in its other rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from agent_kernel.core.file_facts.binary_table import reads_by_pandas
from agent_kernel.core.file_facts.column_types import MISSING, column_type, describe_values
from agent_kernel.core.file_facts.delimited_text import MAX_SKIPPED, title_lines
from agent_kernel.core.file_facts.quoted_text import one_line, shorten
from agent_kernel.core.file_facts.table_keys import key_columns
from agent_kernel.core.file_facts.text_columns import pandas_names
from agent_kernel.core.file_facts.text_file import (
    MAX_COLUMNS,
    NUMBERS,
    ROWS,
    FileFacts,
    computed_columns_of,
    conversions_of,
    periods_of,
)

MAX_SHEETS = 60
"""Maximum number of sheets of which the rows are examined."""
MAX_OTHERS = 5
"""Maximum number of sheets beside the first one whose columns are listed."""
WHOLE_SHEET = 2_000
"""Sheets with at most this many rows are read whole. Only then are their rows counted and a row with totals found."""
ORDINARY_WORD = re.compile(
    r"\w{1,2}|totals?|sum|all|data|summary|overview|info|notes?|list|table|result\w*|report|average|count|daten|gesamt|übersicht",
    re.IGNORECASE,
)
"""Matches names of sheets that a question may contain without meaning the sheet."""
SAME_COLUMNS = 0.75
"""Minimum share of common columns of sheets that are read as one table."""
OF_SHEETS = re.compile(r"\bsheets? (?:per|for each|for every|of each) ([A-Za-z]\w{2,20})\b", re.IGNORECASE)
"""Finds what each sheet of a workbook is for."""
TOTALS = re.compile(
    r"(?:grand |sub)?-?totals?\b|sum\b|overall\b|all\b|summe\b|gesamt\w*\b|insgesamt\b|total général|somme\b|suma\b",
    re.IGNORECASE,
)
"""Matches the beginning of the first cell of the last row of a sheet if that row has totals."""
SUBTOTALS = re.compile(r"(?:(?:sub|grand|sous)?[- ]?total|(?:zwischen|gesamt)?summe|.* total):?", re.IGNORECASE)
"""Matches the first cell of a row with totals between or below the rows of a table."""
MAX_DROPPED = 60
"""Maximum number of rows inside a table that are left out."""
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
"""Matches the form of ``str(datetime)``, which the document reader makes of a cell with a date."""


class Sheet(NamedTuple):
    """The first rows of a sheet, each with its cells. ``whole`` is True if the sheet has no other rows."""

    rows: Sequence[Sequence[Any]]
    whole: bool


class SheetTable(NamedTuple):
    """The table of a sheet: its labels and rows without the title and the totals. ``options`` are the arguments with
    which pandas leaves these out. ``filled`` is the method call that repeats the labels of groups, or an empty string.
    """

    labels: list[str]
    rows: list[list[Any]]
    options: tuple[str, ...]
    whole: bool
    filled: str = ""

    def reads(self, name: str, *options: str) -> str:
        """Return the text that states how pandas reads this table of the workbook ``name``. ``options`` are further
        arguments."""
        return reads_by_pandas(name, *options, *self.options) + self.filled


def workbook_facts(name: str, sheets: Mapping[str, Sheet], prompt: str = "") -> FileFacts:
    """Return the facts about a workbook. ``sheets`` maps the names of its sheets to their rows. The facts describe the
    sheet that ``prompt``, the question about the workbook, names, or else the first sheet with a table. Sheets with
    the same columns as this sheet are described with it as one table, whose first column is the name of the sheet. The
    label of this column is what ``prompt`` says of the sheets ("one sheet per country"). ``name`` is the name by which
    code opens the workbook, which may have no sheet with cells."""
    tables = {sheet: _table_of(rows) for sheet, rows in list(sheets.items())[:MAX_SHEETS]}
    if not tables:
        return FileFacts("table", reads_by_pandas(name))
    main = _main_sheet(tables, prompt)
    first = tables.pop(main)
    tables = {main: first, **tables}
    alike = [sheet for sheet in sheets if sheet in tables and _have_same_columns(tables[sheet], first)]
    # Some sheets may not have been read.
    are_known = all(table.labels or table.whole for table in tables.values()) and len(sheets) <= MAX_SHEETS
    listed = f", sheets: {', '.join(map(shorten, dict.fromkeys([main, *sheets])))}"
    are_read_alike = {(tables[sheet].options, tables[sheet].filled) for sheet in alike} == {(first.options, "")}
    if len(alike) > 1 and are_known and are_read_alike:
        said = OF_SHEETS.search(prompt)
        wanted = said[1].lower() if said else "sheet"
        labels = list(dict.fromkeys(label for sheet in alike for label in tables[sheet].labels))
        label = wanted if wanted not in labels else "sheet_name"
        # pandas places the cells by the labels, whose order may differ.
        cells = [
            (sheet, dict(zip(tables[sheet].labels, row, strict=True))) for sheet in alike for row in tables[sheet].rows
        ]
        rows = [[sheet, *map(row.get, labels)] for sheet, row in cells]
        whole = all(tables[sheet].whole for sheet in alike)
        reads = first.reads(name, f"sheet_name={None if len(alike) == len(sheets) else alike}")
        reads = reads.replace("pd.", "pd.concat(pd.", 1)
        reads += f", names=[{label!r}]).reset_index({label!r}).reset_index(drop=True)"
        return _facts(name, reads, SheetTable([label, *labels], rows, (), whole), listed)
    chosen = [] if main == next(iter(sheets)) else [f"sheet_name={main!r}"]
    facts = _facts(name, first.reads(name, *chosen), first, listed)
    others, keys = [], list(facts.keys)
    for sheet, table in list(tables.items())[1 : 1 + MAX_OTHERS]:
        reads = table.reads(name, f"sheet_name={sheet!r}")
        others.append(one_line(f"sheet {shorten(sheet)} {reads}: {', '.join(map(shorten, table.labels))}"))
        keys += _facts(name, reads, table, "", called=sheet).keys
    return facts._replace(values=[*facts.values, *others], keys=keys)


def _have_same_columns(one: SheetTable, other: SheetTable) -> bool:
    """Return whether the tables have the same columns, in any order, apart from a few that only one of them has."""
    common, every = set(one.labels) & set(other.labels), set(one.labels) | set(other.labels)
    return len(common) >= max(SAME_COLUMNS * len(every), 2) or (bool(every) and common == every)


def is_sheet_named(sheet: str, question: str) -> bool:
    """Return whether the question contains the name of the sheet, in any case, and not only in the name of a file."""
    return bool(re.search(rf"(?<![\w/.-]){re.escape(sheet)}(?![\w/-]|\.\w)", question, re.IGNORECASE))


def _main_sheet(tables: Mapping[str, SheetTable], prompt: str) -> str:
    """Return the first sheet that the prompt names; if it names none, the first one with rows and at least two labels;
    otherwise the first sheet."""
    speaks_of_sheets = re.search(r"\bsheets?\b", prompt, re.IGNORECASE)
    named = (
        sheet
        for sheet in tables
        if is_sheet_named(sheet, prompt) and (speaks_of_sheets or not ORDINARY_WORD.fullmatch(sheet))
    )
    with_table = (
        sheet
        for sheet, table in tables.items()
        if table.rows and sum(not label.startswith("Unnamed: ") for label in table.labels) > 1
    )
    return next(named, None) or next(with_table, None) or next(iter(tables))


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
    dates = [label for label, kind in zip(table.labels, kinds, strict=True) if kind == "date"]
    conversions = conversions_of(name, table.labels, texts) + computed_columns_of(name, numbers, dates)
    conversions += periods_of(name, table.labels, numbers)
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
    skipped = _header_row(numbered)
    end = numbered[-1][0]
    width = max(len(cells) for number, cells in numbered if number > skipped)
    body = range(skipped + 1, end)
    left_out = [at for at in body if sheet.whole and _is_no_row(rows[at], width)]
    if len(left_out) > MAX_DROPPED:
        left_out = []
    # The last row may have totals under more names than a row inside the table.
    has_footer = sheet.whole and end > skipped + 3 and bool(TOTALS.match(_first_text(rows[end - 1])))
    inside = [at for at in left_out if not has_footer or at < end - 1]
    options = [f"skiprows={[*range(skipped), *inside] if inside else skipped}"] if skipped or inside else []
    options += ["skipfooter=1"] if has_footer else []
    header = [*rows[skipped], *[None] * width][:width]
    labels = pandas_names(["" if cell is None else str(cell) for cell in header])
    rows = [[*rows[at], *[None] * width][:width] for at in body[: -1 if has_footer else None] if at not in inside]
    dates = [label for at, label in enumerate(labels) if _is_date_text([row[at] for row in rows])]
    options += [f"parse_dates={dates!r}"] if dates else []
    return SheetTable(labels, rows, tuple(options), sheet.whole, _fill_groups(rows) if sheet.whole else "")


def _header_row(numbered: Sequence[tuple[int, Sequence[Any]]]) -> int:
    """Return the index of the row with the labels. ``numbered`` are the numbers of the rows that are not empty, from 1,
    and their cells."""
    filled = [sum(not _is_empty(cell) for cell in cells) for _, cells in numbered]
    width = max(filled)
    full = next(at for at, count in enumerate(filled) if count == width)
    are_texts = all(isinstance(cell, str) for cell in numbered[full][1])
    # The rows of a title have cells in few columns, which need not be the first ones. Of two columns, one is not few.
    if width > 2 and full <= MAX_SKIPPED and are_texts and all(2 * count <= width for count in filled[:full]):
        return numbered[full][0] - 1
    title = title_lines(numbered)
    # Unlike a table of text, a workbook keeps the empty rows below its title.
    return next((number - 1 for number, _ in numbered if number > title), 0) if title else 0


def _is_no_row(row: Sequence[Any], width: int) -> bool:
    """Return whether the row of a table with ``width`` columns is empty, or has totals of other rows: no cell in at
    least one column, and a name for totals as its first cell."""
    cells = [cell for cell in row if not _is_empty(cell)]
    return not cells or (len(cells) < width and bool(SUBTOTALS.fullmatch(_first_text(row))))


def _fill_groups(rows: list[list[Any]]) -> str:
    """Repeat the labels of groups in ``rows`` if only the first row of each group has them, as in a sheet with merged
    cells. Return the method call with which pandas does the same; an empty string if the rows have no such groups."""
    gaps = {at for row in rows for at, cell in enumerate(row) if _is_empty(cell)}
    # Only leading columns are labels of groups; other gaps are missing values, which pandas must not fill.
    if not gaps or gaps != set(range(len(gaps))) or len(gaps) == len(rows[0]):
        return ""
    starts = [row for row in rows if not any(map(_is_empty, row))]
    if rows[0] not in starts or not all(isinstance(row[0], str) for row in starts):
        return ""
    if 2 * len(starts) > len(rows):
        return ""
    for above, row in pairwise(rows):
        row[:] = [above[at] if _is_empty(cell) else cell for at, cell in enumerate(row)]
    return ".ffill()"


def _is_empty(cell: Any) -> bool:
    return cell is None or cell == ""


def _first_text(row: Sequence[Any]) -> str:
    """Return the first cell of a row that is not empty, if it is a text."""
    cell = next((cell for cell in row if not _is_empty(cell)), None)
    return cell.strip() if isinstance(cell, str) else ""


def _without_empty_end(row: Sequence[Any]) -> list[Any]:
    width = max((at + 1 for at, cell in enumerate(row) if not _is_empty(cell)), default=0)
    return list(row[:width])

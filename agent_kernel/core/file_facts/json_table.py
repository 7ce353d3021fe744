"""Recognises JSON documents that hold the rows of a table, so that code reads them as a data frame.

A small model sums, filters and groups a table correctly far more often than it walks through lists and objects.
Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agent_kernel.core.file_facts.column_types import is_pandas_time

MIN_ROWS = 2
MAX_COLUMNS = 40
MAX_DEPTH = 4
"""Number of levels of objects within a row whose values become columns."""
DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?P<zone>Z)?)?")
"""Matches a date without a zone, or in UTC."""
INDEX = "name"
"""Name of the column for the keys of an object whose values are the rows."""


class JsonTable(NamedTuple):
    """How code makes a data frame of a document: ``before`` and ``after`` surround the expression that loads the
    document. ``cells`` are the values of each column; an absent value is None. ``kinds`` are the types of the
    columns."""

    before: str
    after: str
    cells: Mapping[str, Sequence[Any]]
    kinds: Mapping[str, str]


def json_lines_table(path: str, documents: Sequence[Any]) -> JsonTable | None:
    """Return how code makes a data frame of the file ``path``, whose lines are the ``documents``; None if they are no
    rows. Nothing stands between ``before`` and ``after``, because pandas loads the file."""
    table = _table("", "", documents)
    if table is None:
        return None
    rows = f"pd.read_json({path!r}, lines=True)"
    if any(isinstance(value, dict) for document in documents for value in document.values()):
        rows = f"pd.json_normalize({rows}.to_dict('records'))"
    return table._replace(before=rows, after=table.after.removeprefix(")"))


def json_table(document: Any) -> JsonTable | None:
    """Return how code makes a data frame of ``document``; None if its rows are not certain. A document has rows if it
    is a list of objects, an object whose values are similar objects, or an object with exactly one list of objects
    beside single values. Rows that contain lists of objects are no table."""
    if isinstance(document, list):
        return _table("pd.json_normalize(", "", document)
    return (_rows_of_a_key(document) or _rows_by_name(document)) if isinstance(document, dict) else None


def _rows_of_a_key(document: Mapping[str, Any]) -> JsonTable | None:
    """Return the table of a document such as ``{"unit": "kWh", "meters": [{...}, {...}]}``. What stands beside the rows
    is in columns of its own."""
    lists = [key for key, value in document.items() if isinstance(value, list) and value and _are_objects(value)]
    if len(lists) != 1:
        return None
    beside = dict(_values_of({key: value for key, value in document.items() if key != lists[0]}))
    rows = [dict(_values_of(row)) for row in document[lists[0]]]
    if any(isinstance(value, dict | list) for value in beside.values()) or any(
        key in row for row in rows for key in beside
    ):
        return None  # json_normalize refuses a name that both have
    paths = [key if key in document else key.split(".") for key in beside]
    options = f", record_path={lists[0]!r}" + (f", meta={paths!r}" if paths else "")
    return _table("pd.json_normalize(", options, [{**row, **beside} for row in rows])


def _rows_by_name(document: Mapping[str, Any]) -> JsonTable | None:
    """Return the table of a document such as ``{"Bonn": {"area": 141}, "Cork": {"area": 187}, "Graz": {"area": 127}}``,
    whose keys are in the column INDEX."""
    rows = list(document.values())
    if len(rows) <= MIN_ROWS or not _are_objects(rows) or len({frozenset(row) for row in rows}) > 1 or INDEX in rows[0]:
        return None
    before, after = "pd.DataFrame.from_dict(", f", orient='index').rename_axis({INDEX!r}).reset_index("
    if any(isinstance(value, dict) for row in rows for value in row.values()):
        before, after = f"pd.json_normalize({before}", f"{after}).to_dict('records')"
    return _table(before, after, [{INDEX: key, **row} for key, row in document.items()])


def _table(before: str, after: str, rows: Sequence[Any]) -> JsonTable | None:
    if len(rows) < MIN_ROWS or not _are_objects(rows):
        return None
    flat = [dict(_values_of(row)) for row in rows]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    cells = {column: [row.get(column) for row in flat] for column in columns}
    if len(columns) > MAX_COLUMNS or len(columns) < 2 or any(_has_objects(column) for column in cells.values()):
        return None
    kinds = {column: _kind(values) for column, values in cells.items()}
    dates = {column: _date_type(cells[column]) for column, kind in kinds.items() if kind == "date"}
    return JsonTable(before, f"{after})" + (f".astype({dates!r})" if dates else ""), cells, kinds)


def _values_of(row: Mapping[str, Any], path: str = "", depth: int = MAX_DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the columns of a row, as pandas.json_normalize makes them: ``customer.name``."""
    for key, value in row.items():
        if isinstance(value, dict) and value and depth:
            yield from _values_of(value, f"{path}{key}.", depth - 1)
        else:
            yield f"{path}{key}", value


def _are_objects(values: Sequence[Any]) -> bool:
    return all(isinstance(value, dict) for value in values)


def _has_objects(column: Sequence[Any]) -> bool:
    return any(
        isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict) for item in value))
        for value in column
    )


def _kind(column: Sequence[Any]) -> str:
    """Return the type that pandas gives to the column, ``date`` for texts that are dates, or ``list``."""
    present = [value for value in column if value is not None]
    if present and all(isinstance(value, list) for value in present):
        return "list"
    if present and all(isinstance(value, bool) for value in present):
        return "bool" if len(present) == len(column) else "object"
    if present and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
        is_whole = all(isinstance(value, int) for value in present) and len(present) == len(column)
        return "int64" if is_whole else "float64"
    if present and all(isinstance(value, str) for value in present):
        return "date" if _date_type(present) else "str"
    return "object"


def _date_type(column: Sequence[Any]) -> str:
    """Return the type of pandas for the dates of the column; "" if it has other texts or several zones."""
    matches = [DATE.fullmatch(value) for value in column if value is not None]
    zones = {match["zone"] for match in matches if match}
    if not all(match and is_pandas_time(match[0]) for match in matches) or len(zones) != 1:
        return ""
    return "datetime64[ns, UTC]" if zones == {"Z"} else "datetime64[ns]"

"""Tables and charts that came out of the jail: checked, since a page that trusts them will draw them. Pure.

A chart is data and nothing else: one that names an address, loads a picture or runs an expression that could make one
is not shown, because drawing it in a person's browser would carry to that address what the jail keeps in.
"""

from __future__ import annotations

import json
import re
from typing import Any

TABLE = "application/vnd.agent-kernel.table+json"
MAX_BYTES = 4 << 20
MAX_ROWS = 200
MAX_COLUMNS = 100
MAX_CELL = 400
MAX_DEPTH = 60
ADDRESS = re.compile(r"//|\\\\|javascript:|vbscript:|data:\w+/|(?:file|blob|filesystem):\S", re.IGNORECASE)
LOADING = frozenset({"url", "href", "usermeta", "loader"})
"""Fields of a chart that lead elsewhere whatever they hold."""
LOADING_TEXT = frozenset({"src", "source", "geojson", "topojson", "accesstoken"})
"""Fields that may hold numbers or objects, but no text: as a text they are an address."""
SCHEMA = re.compile(r"https://vega\.github\.io/schema/vega-lite/v[\d.]{1,10}\.json")
INLINE = re.compile(r"data:image/(?:png|jpeg);base64,[A-Za-z0-9+/=]*")
BASE64 = re.compile(r"[A-Za-z0-9+/=]*")
MARKUP = re.compile(r"<(?!/?(?:b|i|br|sub|sup|em|extra)\s*/?>)[a-z!/]", re.IGNORECASE)
"""Tags in texts, but those that only change how a label looks."""


class NotShown(Exception):
    """Why it is left out, in words for a person."""


def checked(mime: str, data: bytes) -> bytes:
    """The same in canonical form. Raises NotShown."""
    if len(data) > MAX_BYTES:
        raise NotShown(f"it has more than {MAX_BYTES >> 20} MB")
    try:
        body = json.loads(data, parse_constant=lambda name: None)
    except (ValueError, RecursionError) as error:
        raise NotShown("it is not JSON") from error
    if not isinstance(body, dict):
        raise NotShown("it is not an object")
    found = _table(body) if mime == TABLE else _chart(body)
    try:
        return json.dumps(found, separators=(",", ":"), allow_nan=False).encode("ascii")
    except ValueError as error:  # 1e999 is read as infinity
        raise NotShown("it has a number that JSON does not") from error


def _table(body: dict[str, Any]) -> dict[str, Any]:
    columns, index, rows, shape = (body.get(name) for name in ("columns", "index", "rows", "shape"))
    if not (isinstance(columns, list) and isinstance(index, list) and isinstance(rows, list)):
        raise NotShown("it is no table")
    if len(columns) > MAX_COLUMNS or len(rows) > MAX_ROWS or len(index) not in (0, len(rows)):
        raise NotShown("it is no table")
    if not (isinstance(shape, list) and len(shape) == 2 and all(type(side) is int and side >= 0 for side in shape)):
        raise NotShown("it is no table")
    heads = []
    for column in columns:
        if not isinstance(column, dict):
            raise NotShown("it is no table")
        heads.append({name: _cell(str(column.get(name, ""))) for name in ("name", "type")})
    if not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        raise NotShown("its rows are not as long as its head")
    cells = [[_cell(value) for value in row] for row in rows]
    return {"columns": heads, "index": [_cell(label) for label in index], "rows": cells, "shape": shape}


def _cell(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str) and len(value) <= MAX_CELL:
        return value
    raise NotShown("a cell is neither a short text nor a number")


def _chart(body: dict[str, Any]) -> dict[str, Any]:
    # The name of the format is an address by its nature; nothing is loaded from it.
    inspected = {key: value for key, value in body.items() if key != "$schema"}
    _inspect(inspected)
    schema = body.get("$schema")
    if isinstance(schema, str) and re.fullmatch(
        r"https://vega\.github\.io/schema/vega-lite/v[\d.]{1,10}\.json", schema
    ):
        inspected["$schema"] = schema
    return inspected


def _inspect(value: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise NotShown("it nests too deeply")
    if isinstance(value, str):
        _inspect_text(value)
    elif isinstance(value, list):
        for item in value:
            _inspect(item, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _inspect_text(key)
            if not _inspect_field(key, item):
                _inspect(item, depth + 1)


def _inspect_text(text: str) -> None:
    if ADDRESS.search(text):
        raise NotShown("it names an address")
    if MARKUP.search(text):
        raise NotShown("it has markup in a text")


def _inspect_field(key: str, item: Any) -> bool:
    """True when nothing is left to look at."""
    name = key.lower()
    if isinstance(item, str):
        if (name == "bdata" and BASE64.fullmatch(item)) or (name == "source" and INLINE.fullmatch(item)):
            return True
        if name in LOADING_TEXT or (name == "mark" and item == "image"):
            raise NotShown(f"it has a field {key!r}, which may load something")
    if name in LOADING or (name == "mark" and isinstance(item, dict) and item.get("type") == "image"):
        raise NotShown(f"it has a field {key!r}, which may load something")
    return False

"""Validates tables and charts from the jail, because the browser page that displays them trusts them. The functions
have no side effects.

A chart that contains a URL could make the user's browser send data from the jail to that URL. So only charts that pass
the allow-lists in ``plotly_chart`` and ``vega_chart`` are displayed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from agent_kernel.sandbox.host.chart_text import NotShown
from agent_kernel.sandbox.host.plotly_chart import checked_plotly
from agent_kernel.sandbox.host.vega_chart import checked_vega

__all__ = ["CHARTS", "PLOTLY", "TABLE", "NotShown", "validate_chart"]

TABLE = "application/vnd.agent-kernel.table+json"
PLOTLY = "application/vnd.plotly.v1+json"
CHARTS = frozenset({PLOTLY, *(f"application/vnd.vegalite.v{version}+json" for version in range(2, 10))})
"""The types of charts that can be validated."""
MAX_BYTES = 4 << 20
MAX_ROWS = 200
MAX_COLUMNS = 100
MAX_CELL = 400


def validate_chart(mime: str, data: bytes) -> bytes:
    """Return the table or chart as JSON in canonical form, without parts that have no effect. Raises NotShown if it is
    not allowed."""
    if len(data) > MAX_BYTES:
        raise NotShown(f"it has more than {MAX_BYTES >> 20} MB")
    try:
        body = json.loads(data, parse_constant=lambda name: None)
    except (ValueError, RecursionError) as error:
        raise NotShown("it is not JSON") from error
    if not isinstance(body, dict):
        raise NotShown("it is not a JSON object")
    chart = CHECKS[mime](body) if mime in CHECKS else checked_vega(body)
    try:
        return json.dumps(chart, separators=(",", ":"), allow_nan=False).encode("ascii")
    except ValueError as error:  # 1e999 is parsed as infinity
        raise NotShown("it has a number that JSON does not allow") from error


def _table(body: dict[str, Any]) -> dict[str, Any]:
    columns, index, rows, shape = (body.get(name) for name in ("columns", "index", "rows", "shape"))
    if not (isinstance(columns, list) and isinstance(index, list) and isinstance(rows, list)):
        raise NotShown("the table does not have the form that the sandbox sends")
    if len(columns) > MAX_COLUMNS or len(rows) > MAX_ROWS or len(index) not in (0, len(rows)):
        raise NotShown("the table does not have the form that the sandbox sends")
    if not (isinstance(shape, list) and len(shape) == 2 and all(type(side) is int and side >= 0 for side in shape)):
        raise NotShown("the table does not have the form that the sandbox sends")
    heads = []
    for column in columns:
        if not isinstance(column, dict):
            raise NotShown("the table does not have the form that the sandbox sends")
        heads.append({name: _cell(str(column.get(name, ""))) for name in ("name", "type")})
    if not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        raise NotShown("the table has a row with more or fewer cells than its header")
    cells = [[_cell(value) for value in row] for row in rows]
    return {"columns": heads, "index": [_cell(label) for label in index], "rows": cells, "shape": shape}


def _cell(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str) and len(value) <= MAX_CELL:
        return value
    raise NotShown("the table has a cell that is neither a short text nor a number")


CHECKS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = MappingProxyType(
    {TABLE: _table, PLOTLY: checked_plotly}
)
"""Validators by type; every other type is a version of Vega-Lite."""

"""Converts a value to its text and, where it has one, a picture, table or chart. Runs inside the jail: standard library
only.

It never converts to HTML, because the browser page that displays the output would trust HTML. Of an object that has
only HTML, the text of the HTML is shown.
"""

from __future__ import annotations

import json
import math
import re
import sys
from html.parser import HTMLParser
from typing import Any

from agent_kernel.sandbox.worker.traceback_filter import cut

TABLE = "application/vnd.agent-kernel.table+json"
PLOTLY = "application/vnd.plotly.v1+json"
ROWS = 50
COLUMNS = 30
CELL = 200
HTML = 200_000
"""Maximum characters of HTML whose text is shown."""
DEFAULT_REPR = re.compile(r"<[\w.<>]+ object(?: at 0x[0-9a-f]+)?>")
"""Matches the text of an object without a representation of its own."""
_PICTURES = (("_repr_png_", "image/png", b"\x89PNG\r\n\x1a\n"), ("_repr_jpeg_", "image/jpeg", b"\xff\xd8\xff"))
Pictured = tuple[str, bytes]


def text_of(value: Any, limit: int) -> str:
    sane_frames()
    if _is(value, "plotly", "BaseFigure"):
        kinds = [str(getattr(trace, "type", "")) for trace in value.data]
        return f"[plotly figure: {', '.join(kinds[:20])}]"
    text = repr(value)
    if DEFAULT_REPR.fullmatch(text) and (shown := _text_of_html(value)):
        text = shown
    return cut(text, limit)


def media_of(value: Any) -> Pictured | None:
    """Return the picture, table or chart of a value, or None if it has none. Raises any exception that the value's own
    conversion raises."""
    return _picture(value) or _table(value) or _chart(value)


def sane_frames() -> None:
    """Set the width and length with which pandas displays tables to values that suit people and models. Keeps settings
    that the code has changed."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not hasattr(pandas, "set_option") or getattr(pandas, "_agent_kernel_seen", False):
        return
    pandas._agent_kernel_seen = True  # type: ignore[attr-defined]
    for option, usual, value in (("width", 80, 120), ("max_columns", 0, 20), ("max_rows", 60, 30)):
        if pandas.get_option(f"display.{option}") in (usual, 20):
            pandas.set_option(f"display.{option}", value)


def _text_of_html(value: Any) -> str:
    """Return the text of the HTML that a value has for IPython's display protocol: a line for each row or paragraph,
    and tabs between cells. Return an empty string for a value without HTML."""
    try:
        html = type(value)._repr_html_(value)
    except Exception:  # noqa: BLE001 - a value that cannot be rendered has its repr
        return ""
    if not isinstance(html, str):
        return ""
    reader = _TextReader()
    reader.feed(html[:HTML])
    reader.close()
    lines = ("\t".join(cell.strip() for cell in line.split("\t")) for line in "".join(reader.texts).splitlines())
    return "\n".join(line.rstrip() for line in lines if line.strip())


class _TextReader(HTMLParser):
    """Collects the text of HTML in ``texts``, without that of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._hidden = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in ("script", "style", "head"):
            self._hidden = self._hidden or tag
        elif tag in ("tr", "p", "div", "br", "li", "h1", "h2", "h3", "table", "caption"):
            self.texts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._hidden:
            self._hidden = ""
        elif tag in ("td", "th"):
            self.texts.append("\t")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.texts.append(" ".join(f"|{data}|".split())[1:-1])


def _picture(value: Any) -> Pictured | None:
    """Return the picture of a value: of PIL images, and of other objects that follow IPython's display protocol."""
    for name, mime, magic in _PICTURES:
        try:
            data = getattr(type(value), name)(value)
        except Exception:  # noqa: BLE001 - a value that cannot be rendered has its repr
            continue
        if isinstance(data, bytes) and data.startswith(magic):
            return mime, data
    return None


def _table(value: Any) -> Pictured | None:
    if _is(value, "pandas", "Series"):
        value = value.to_frame()
    if _is(value, "pandas", "DataFrame"):
        part = value.iloc[:ROWS, :COLUMNS]
        columns = [part.iloc[:, place].tolist() for place in range(part.shape[1])]
        index = [cell(label) for label in part.index.tolist()]
    elif _is(value, "polars", "DataFrame"):
        part = value[:ROWS, : min(COLUMNS, value.width)]
        columns, index = [column.to_list() for column in part.get_columns()], []
    else:
        return None
    heads = zip(part.columns, list(part.dtypes), strict=True)
    body = {
        "columns": [{"name": _short(name), "type": _short(kind)} for name, kind in heads],
        "index": index,
        "rows": [[cell(column[row]) for column in columns] for row in range(len(part))],
        "shape": [len(value), len(value.columns)],
    }
    return TABLE, json.dumps(body).encode()


def cell(value: Any) -> Any:
    """Convert a table cell to a number, text, boolean, or null for missing values."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 1 << 53 else str(value)[:CELL]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None if math.isnan(value) else str(value)
    text = _short(value)
    return None if text in ("NaT", "<NA>") else text


def _chart(value: Any) -> Pictured | None:
    if _is(value, "plotly", "BaseFigure"):
        return PLOTLY, value.to_json().encode()
    if type(value).__module__.partition(".")[0] == "altair" and hasattr(value, "to_dict"):
        body = value.to_dict()
        version = re.search(r"/vega-lite/v(\d)", str(body.get("$schema", "")))
        return f"application/vnd.vegalite.v{version[1] if version else '5'}+json", json.dumps(body).encode()
    return None


def _is(value: Any, library: str, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.partition(".")[0] == library for kind in type(value).__mro__)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= CELL else text[: CELL - 1] + "…"

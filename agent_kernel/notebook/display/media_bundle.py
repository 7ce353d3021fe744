"""What a tool showed, between MIME bundles and the media of a result: pictures, charts, and tables, which are drawn
here from their cells."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Mapping
from typing import Any

from agent_kernel.notebook.display.render import QUIET, Bundle, image_bundle, table_bundle
from agent_kernel.notebook.display.safe_output import safe_bundle
from agent_kernel.notebook.kernel.capture import IMAGES

TABLE = "application/vnd.agent-kernel.table+json"
NEWER_VEGA_LITE = re.compile(r"application/vnd\.vegalite\.v(?:[6-9]|\d{2,})\+json")
"""JupyterLab draws version 5 at most, under its name only; it draws what newer versions share with it."""
VEGA_LITE = "application/vnd.vegalite.v5+json"
BUNDLE = "application/vnd.agent-kernel.bundle+json"
"""A MIME bundle as one medium: an object of MIME types and what was shown as each. No model is told of it: its
``text/plain`` is in the text of the result."""
CHARTS = ("application/vnd.plotly", "application/vnd.vega")
RICH = ("text/html", "text/markdown", "text/latex", "image/svg+xml", "application/json", "application/geo+json")
MAX_BUNDLE_BYTES = 2 << 20
MAX_BUNDLES = 16
"""Of one call."""


def bundle_medium(data: Mapping[str, Any]) -> bytes | None:
    """What a cell shows as ``data``, for other places that show the call. None for a bundle that is a picture, which
    goes by itself, or nothing but text, which the result has, and for one that is too large."""
    charts = [mime for mime in data if mime.startswith(CHARTS)]
    kept = [mime for mime in RICH if mime in data and not (charts and mime == "text/html")]  # a chart's HTML is scripts
    if any(mime in data for mime in IMAGES) or not (charts or kept):
        return None
    try:
        body = json.dumps({mime: data[mime] for mime in (*charts, *kept, "text/plain") if mime in data}).encode()
    except (TypeError, ValueError, RecursionError):
        return None
    return body if len(body) <= MAX_BUNDLE_BYTES else None


def media_bundle(mime: str, data: str, alt: str) -> Bundle:
    """``data`` in base64: a picture, a chart for a renderer of its type, or a table, which is drawn here."""
    if not mime.endswith("+json"):
        return image_bundle(mime, data, alt)
    try:
        found = json.loads(base64.b64decode(data))
        if mime == BUNDLE:
            return safe_bundle(found if isinstance(found, dict) else {})
        drawn_as = VEGA_LITE if NEWER_VEGA_LITE.fullmatch(mime) else mime
        return _table(found) if mime == TABLE else {drawn_as: found, "text/plain": f"[{alt}]"}
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return {"text/plain": f"[{alt}]"}


def _table(found: Mapping[str, Any]) -> Bundle:
    """As ``sandbox/values.py`` makes it: a part of a table, and its whole shape."""
    head = [str(column["name"]) for column in found["columns"]]
    index = found["index"] or [""] * len(found["rows"])
    rows = [[label, *row] for label, row in zip(index, found["rows"], strict=True)]
    bundle = table_bundle(["", *head], [["" if cell is None else cell for cell in row] for row in rows])
    shape = f"{found['shape'][0]:,} rows x {found['shape'][1]:,} columns"
    if [len(rows), len(head)] != found["shape"]:
        shape += f", of which {len(rows)} x {len(head)} are shown"
    return {
        "text/html": f"{bundle['text/html']}<div style='{QUIET}'>{html.escape(shape)}</div>",
        "text/plain": f"{bundle['text/plain']}\n{shape}",
    }

"""Converts between MIME bundles and media of a result: pictures, charts, and tables rendered from their cells."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Mapping
from typing import Any

from agent_kernel.notebook.display.render import QUIET, Bundle, table_bundle
from agent_kernel.notebook.display.safe_output import safe_bundle
from agent_kernel.notebook.kernel.capture import IMAGES

TABLE = "application/vnd.agent-kernel.table+json"
NEWER_VEGA_LITE = re.compile(r"application/vnd\.vegalite\.v(?:[6-9]|\d{2,})\+json")
"""JupyterLab renders Vega-Lite up to version 5, and only under that name; most charts of newer versions render as
well."""
VEGA_LITE = "application/vnd.vegalite.v5+json"
BUNDLE = "application/vnd.agent-kernel.bundle+json"
"""A MIME bundle stored as one medium: an object from MIME type to content. Models never see it; its ``text/plain``
is part of the result's text."""
CHARTS = ("application/vnd.plotly", "application/vnd.vega")
RICH = ("text/html", "text/markdown", "text/latex", "image/svg+xml", "application/json", "application/geo+json")
MAX_BUNDLE_BYTES = 2 << 20
MAX_BUNDLES = 16
"""Limit for the number of stored bundles per call."""


def bundle_medium(data: Mapping[str, Any]) -> bytes | None:
    """Return a displayed bundle as one medium, so that other clients can display the call too. Returns None for bundles
    with a picture, which is sent as a medium of its own, for plain text, which the result contains anyway, and for
    bundles that are too large."""
    charts = [mime for mime in data if mime.startswith(CHARTS)]
    # the HTML of a chart consists of scripts
    kept = [mime for mime in RICH if mime in data and not (charts and mime == "text/html")]
    if any(mime in data for mime in IMAGES) or not (charts or kept):
        return None
    try:
        body = json.dumps({mime: data[mime] for mime in (*charts, *kept, "text/plain") if mime in data}).encode()
    except (TypeError, ValueError, RecursionError):
        return None
    return body if len(body) <= MAX_BUNDLE_BYTES else None


def media_bundle(mime: str, data: str, alt: str) -> Bundle:
    """Render a medium. ``data`` is base64: a picture, a chart for a renderer of its type, a bundle, or a table."""
    if not mime.endswith("+json"):
        return {mime: data, "text/plain": f"[{alt}]"}
    try:
        content = json.loads(base64.b64decode(data))
        if mime == BUNDLE:
            return safe_bundle(content if isinstance(content, dict) else {})
        drawn_as = VEGA_LITE if NEWER_VEGA_LITE.fullmatch(mime) else mime
        return _table(content) if mime == TABLE else {drawn_as: content, "text/plain": f"[{alt}]"}
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return {"text/plain": f"[{alt}]"}


def _table(table: Mapping[str, Any]) -> Bundle:
    """Render a table from the JSON of the sandbox worker, which contains some of its rows and the shape of the whole
    table."""
    head = [str(column["name"]) for column in table["columns"]]
    index = table["index"] or [""] * len(table["rows"])
    rows = [[label, *row] for label, row in zip(index, table["rows"], strict=True)]
    bundle = table_bundle(["", *head], [["" if cell is None else cell for cell in row] for row in rows])
    shape = f"{table['shape'][0]:,} rows x {table['shape'][1]:,} columns"
    if [len(rows), len(head)] != table["shape"]:
        shape += f", of which {len(rows)} x {len(head)} are shown"
    return {
        "text/html": f"{bundle['text/html']}<div style='{QUIET}'>{html.escape(shape)}</div>",
        "text/plain": f"{bundle['text/plain']}\n{shape}",
    }

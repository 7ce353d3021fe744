"""Converts MIME bundles to the media of a tool result, and these media to MIME bundles. Media are pictures, charts and
tables. The values of a table are rendered as HTML and as text."""

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
"""Matches the MIME types of Vega-Lite 6 and later. JupyterLab has a renderer for Vega-Lite 5 only, so these charts are
sent under the MIME type of version 5, whose renderer displays most of them."""
VEGA_LITE = "application/vnd.vegalite.v5+json"
BUNDLE = "application/vnd.agent-kernel.bundle+json"
"""MIME type of a whole MIME bundle (a JSON object from MIME type to content) that is stored as one media file. Models
never see the bundle; its ``text/plain`` is part of the result's text."""
CHARTS = ("application/vnd.plotly", "application/vnd.vega")
RICH = ("text/html", "text/markdown", "text/latex", "image/svg+xml", "application/json", "application/geo+json")
MAX_BUNDLE_BYTES = 2 << 20
MAX_BUNDLES = 16
"""Limit for the number of stored bundles per call."""


def bundle_medium(data: Mapping[str, Any]) -> bytes | None:
    """Return a displayed MIME bundle as the JSON of one media file, so that other clients can display it too.

    Returns None if the bundle has a picture, which is sent as a separate media file; if it has only plain text, which
    the result contains anyway; or if it has more than MAX_BUNDLE_BYTES bytes.
    """
    charts = [mime for mime in data if mime.startswith(CHARTS)]
    # The HTML form of a chart consists of scripts, so it is left out.
    mimes = [mime for mime in RICH if mime in data and not (charts and mime == "text/html")]
    if any(mime in data for mime in IMAGES) or not (charts or mimes):
        return None
    try:
        body = json.dumps({mime: data[mime] for mime in (*charts, *mimes, "text/plain") if mime in data}).encode()
    except (TypeError, ValueError, RecursionError):
        return None
    return body if len(body) <= MAX_BUNDLE_BYTES else None


def media_bundle(mime: str, data: str, alt: str) -> Bundle:
    """Render a media file of type ``mime`` as a MIME bundle. ``data`` is the base64 of a picture, a chart, a whole
    bundle, or a table. ``alt`` is the text for front ends that cannot display it."""
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
    """Render a table. ``table`` is the JSON that the sandbox worker sends: some of the rows, and the shape of the whole
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

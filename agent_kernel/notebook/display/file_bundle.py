"""Displays the files that one tool call produced as one output: one line per file, with a link to its content on the
server."""

from __future__ import annotations

import html
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.notebook.display.render import QUIET, Bundle
from agent_kernel.notebook.server_client import quote_segment

SHOWN = 20
"""Number of files that are listed by name. Of further files, only the number is displayed."""


def files_bundle(files: Sequence[Mapping[str, Any]], server: str, session: str) -> Bundle:
    """Render the list of files. ``server`` is the server's URL including its base URL, ``session`` the id of the
    session. Links have no host, so the browser loads the files from the server that delivered the notebook page."""
    base = urllib.parse.urlsplit(server).path
    lines = [f"{file['name']}, {describe_size(file)}" for file in files[:SHOWN]]
    rows = [
        _row(file, f"{base}agent/v1/files/{quote_segment(str(file['id']))}/content", session) for file in files[:SHOWN]
    ]
    if len(files) > SHOWN:
        more = f"and {len(files) - SHOWN} more files"
        lines.append(more)
        rows.append(more)
    body = "".join(f"<div style='{QUIET}'>{row}</div>" for row in rows)
    return {"text/html": body, "text/plain": "\n".join(f"[file] {line}" for line in lines)}


def describe_size(file: Mapping[str, Any]) -> str:
    """Return the size of the file as text, such as "12 KB". For a file that could not be produced, return the error
    message instead."""
    if file.get("code"):
        return str(file.get("message") or file["code"])
    size, unit = float(file.get("bytes", 0)), "bytes"
    for larger in ("KB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.3g} {unit}" if unit != "bytes" else f"{size:.0f} {unit}"


def _row(file: Mapping[str, Any], url: str, session: str) -> str:
    name = html.escape(str(file["name"]))
    if file.get("code"):
        return f"{name}, {html.escape(describe_size(file))}"
    link = html.escape(f"{url}?session={urllib.parse.quote(session, safe='')}")
    return f"<a href='{link}' target='_blank' rel='noopener'>{name}</a>, {html.escape(describe_size(file))}"

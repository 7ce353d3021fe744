"""Terminal output of a running notebook: sources, then outputs as they grow."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, TextIO

from nbformat import NotebookNode

ANSI = re.compile(r"\x1b\[[0-9;]*m")
TEXTS = ("text/plain", "text/markdown")


class Terminal:
    """Prints only new output: the end of a text that grew, and the new lines of an output that changed."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown: dict[str, str] = {}
        self._last = ""
        self._at_start = True

    def cell(self, number: int, cell: NotebookNode) -> None:
        self.line()
        self.line(f"── cell {number} " + "─" * 60)
        for row in cell.source.rstrip().splitlines():
            self.line(f"│ {row}")

    def message(self, message: Mapping[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            self._write(ANSI.sub("", content["text"]))
        elif kind == "error":
            self.line(f"{content['ename']}: {content['evalue']}")
        elif kind in {"display_data", "update_display_data", "execute_result"}:
            self._display(message["header"]["msg_id"], content)

    def line(self, text: str = "") -> None:
        """Print ``text`` on a separate line."""
        self._write(("" if self._at_start else "\n") + text + "\n")

    def _display(self, message_id: str, content: Mapping[str, Any]) -> None:
        data = content["data"]
        if "image/png" in data:
            size = len(base64.b64decode(data["image/png"]))
            self.line(f"[image/png, {size / 1000:.1f} kB]")
            return
        text = next((data[mime] for mime in TEXTS if mime in data), "")
        name = (content.get("transient") or {}).get("display_id") or message_id
        self._grow(name, ANSI.sub("", text))

    def _grow(self, name: str, text: str) -> None:
        before = self._shown.get(name, "")
        if text == before:
            return
        self._shown[name] = text
        if name == self._last and text.startswith(before):
            self._write(text[len(before) :])
        else:
            known = set(before.splitlines())
            fresh = "\n".join(line for line in text.splitlines() if line not in known)
            self._write(("" if self._at_start or not fresh else "\n") + fresh)
        self._last = name

    def _write(self, text: str) -> None:
        if text:
            self._at_start = text.endswith("\n")
            self._out.write(text)
            self._out.flush()

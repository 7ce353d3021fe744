"""Converts kernel messages to cell outputs as a front end does. A message that updates a display changes that display
in place."""

from __future__ import annotations

from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import output_from_msg

KEPT = {"execute_result", "stream", "display_data", "update_display_data", "error"}


class CellOutputs:
    """The outputs of the cells of one notebook. A display belongs to the cell that created it, even if a later cell
    updates it."""

    def __init__(self) -> None:
        self._displays: dict[str, list[NotebookNode]] = {}
        self._clear_next = False

    def apply(self, message: dict[str, Any], cell: NotebookNode) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "execute_input":
            cell.execution_count = content["execution_count"]
        elif kind == "clear_output":
            self._clear_next = content.get("wait", False)
            if not self._clear_next:
                cell.outputs = []
        elif kind in KEPT:
            if self._clear_next:
                cell.outputs, self._clear_next = [], False
            self._keep(kind, content, output_from_msg(_as_display(message)), cell)

    def _keep(self, kind: str, content: dict[str, Any], output: NotebookNode, cell: NotebookNode) -> None:
        display = str((content.get("transient") or {}).get("display_id", ""))
        if kind == "update_display_data":
            for shown in self._displays.get(display, ()):
                shown.data, shown.metadata = output.data, output.metadata
            return
        last = cell.outputs[-1] if cell.outputs else None
        if kind == "stream" and last is not None and last.get("name") == output.name:
            last.text += output.text
            return
        cell.outputs.append(output)
        if display:
            self._displays.setdefault(display, []).append(output)


def _as_display(message: dict[str, Any]) -> dict[str, Any]:
    """Convert the message ``update_display_data`` to ``display_data``, because nbformat has no outputs for updates."""
    if message["msg_type"] != "update_display_data":
        return message
    return message | {"header": message["header"] | {"msg_type": "display_data"}}

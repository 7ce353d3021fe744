"""Identifies the cell of a turn, with the same id for the same cell in every run of the notebook."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any


class CellIdentity:
    """Returns the id of the running cell. It is the cell id that the front end sends (JupyterLab, VS Code).

    For other front ends the id is a hash of the cell's source, with the number of times that this source has run since
    the kernel started. So Run All after a restart gives every cell the same id again."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._occurrences: Counter[str] = Counter()
        self._lines = ("", 0)

    def id_of(self, source: str) -> str:
        sent = parent_request(self._shell).get("metadata", {}).get("cellId")
        if isinstance(sent, str) and sent:
            return sent
        digest = hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()[:16]
        self._occurrences[digest] += 1
        return f"{digest}:{self._occurrences[digest]}"

    def id_of_line(self, line: str) -> str:
        """Return the id of an ``%agent ask`` line. Of several such lines in one cell, the first has the cell's id and
        the others get a number after it; the ids are the same in every run of the cell."""
        request = parent_request(self._shell)
        sent = request.get("metadata", {}).get("cellId")
        if not isinstance(sent, str) or not sent:
            return self.id_of(f"%agent {line}")
        execution = str(request.get("header", {}).get("msg_id"))
        self._lines = (execution, self._lines[1] + 1 if self._lines[0] == execution else 1)
        return sent if self._lines[1] == 1 else f"{sent}#{self._lines[1]}"


def metadata_of_code(shell: Any, source: str) -> dict[str, Any]:
    """Return the metadata of the cell that is being executed if ``source`` is its code, else {}. JupyterLab sends the
    metadata of a cell with the request to run it; nbclient sends none."""
    request = parent_request(shell)
    sent, code = request.get("metadata"), request.get("content", {}).get("code")
    is_this_cell = isinstance(code, str) and code.strip() == source.strip()
    return dict(sent) if is_this_cell and isinstance(sent, dict) else {}


def parent_request(shell: Any) -> dict[str, Any]:
    """Return the request message that is being executed; {} outside a kernel."""
    kernel = getattr(shell, "kernel", None)
    request = kernel.get_parent("shell") if kernel is not None else None
    return dict(request) if request else {}

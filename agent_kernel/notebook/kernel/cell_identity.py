"""Which cell a turn comes from, the same for the same cell in every run of the notebook."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any


class CellIdentity:
    """The front end's own cell id where it sends one (JupyterLab, VS Code). Elsewhere the source's hash and how often
    that source was met in this life of the kernel, which a Run All repeats in the same order."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._met: Counter[str] = Counter()
        self._lines = ("", 0)

    def id_of(self, source: str) -> str:
        sent = parent_request(self._shell).get("metadata", {}).get("cellId")
        if isinstance(sent, str) and sent:
            return sent
        digest = hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()[:16]
        self._met[digest] += 1
        return f"{digest}:{self._met[digest]}"

    def id_of_line(self, line: str) -> str:
        """Of a line that asks: several may stand in one cell, and each is the same in every run of it."""
        request = parent_request(self._shell)
        sent = request.get("metadata", {}).get("cellId")
        if not isinstance(sent, str) or not sent:
            return self.id_of(f"%agent {line}")
        execution = str(request.get("header", {}).get("msg_id"))
        self._lines = (execution, self._lines[1] + 1 if self._lines[0] == execution else 1)
        return sent if self._lines[1] == 1 else f"{sent}#{self._lines[1]}"


def parent_request(shell: Any) -> dict[str, Any]:
    """The request that this execution answers; empty outside of a kernel."""
    kernel = getattr(shell, "kernel", None)
    found = kernel.get_parent("shell") if kernel is not None else None
    return dict(found) if found else {}

"""Reads the code cells of a notebook. A replay runs them before turns that ran in the notebook's kernel. The file is
read as JSON; this module runs nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_kernel.core.wire.agent_cells import is_agent_cell

MAX_BYTES = 64 * 2**20


class NotebookCode:
    """The code cells of a notebook, in the order of the notebook. Each cell is yielded only once: if it ran before an
    earlier turn, its variables already exist."""

    def __init__(self, cells: list[dict[str, Any]]) -> None:
        self._cells = cells
        self._done = 0

    @classmethod
    def read(cls, path: Path) -> NotebookCode | None:
        """Read a notebook. Return None if the file is missing or unreadable."""
        try:
            if not path.is_file() or path.stat().st_size > MAX_BYTES:
                return None
            cells = json.loads(path.read_bytes())["cells"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return cls([cell for cell in cells if isinstance(cell, dict)]) if isinstance(cells, list) else None

    def take_above(self, cell: str) -> Iterator[tuple[int, str]]:
        """Yield (number of the cell from 1, code) for each code cell above the cell with the id ``cell`` that was not
        yielded before."""
        place = next((at for at, notebook_cell in enumerate(self._cells) if notebook_cell.get("id") == cell), None)
        if place is None:
            return
        while self._done < place:
            number, notebook_cell = self._done + 1, self._cells[self._done]
            self._done = number
            code = _code(notebook_cell)
            if notebook_cell.get("cell_type") == "code" and code.strip():
                yield number, code


def _code(cell: dict[str, Any]) -> str:
    """Return the code of a cell without line magics and shell commands, which are not Python; an empty string for a
    cell magic or a prompt."""
    source = cell.get("source", "")
    text = "".join(map(str, source)) if isinstance(source, list) else str(source)
    if text.lstrip().startswith("%%") or is_agent_cell(text, cell.get("metadata")):
        return ""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("%", "!")))

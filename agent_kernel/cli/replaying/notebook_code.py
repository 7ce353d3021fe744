"""The person's own code in a notebook, for turns that ran in its kernel. Reads the file as JSON, runs nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_BYTES = 64 * 2**20


class NotebookCode:
    """Each cell is given once, in the order of the page: what ran for an earlier turn is there already."""

    def __init__(self, cells: list[dict[str, Any]]) -> None:
        self._cells = cells
        self._done = 0

    @classmethod
    def read(cls, path: Path) -> NotebookCode | None:
        """None where there is no notebook, or none that can be read."""
        try:
            if not path.is_file() or path.stat().st_size > MAX_BYTES:
                return None
            cells = json.loads(path.read_bytes())["cells"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return cls([cell for cell in cells if isinstance(cell, dict)]) if isinstance(cells, list) else None

    def above(self, cell: str) -> Iterator[tuple[int, str]]:
        """(number of the cell from 1, its code) of those above the cell with this id that were not given yet."""
        place = next((at for at, one in enumerate(self._cells) if one.get("id") == cell), None)
        if place is None:
            return
        while self._done < place:
            number, one = self._done + 1, self._cells[self._done]
            self._done = number
            code = _code(one)
            if one.get("cell_type") == "code" and code.strip():
                yield number, code


def _code(cell: dict[str, Any]) -> str:
    """Without magics and commands of a shell, which are not Python; a cell magic is none at all."""
    source = cell.get("source", "")
    text = "".join(map(str, source)) if isinstance(source, list) else str(source)
    if text.lstrip().startswith("%%"):
        return ""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("%", "!")))

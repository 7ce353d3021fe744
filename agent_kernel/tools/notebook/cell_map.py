"""Describes a notebook to the model as text: a map of its cells, and the content of selected cells. The functions take
nbformat data and do no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import shorten
from agent_kernel.core.wire import agent_cells

MAPPED = 50
"""Maximum number of cells that one map lists."""
LINE = 70
READ_CHARS = 5_000
OUTPUT_CHARS = 1_200
"""Maximum characters of all outputs of one cell."""
PREFIX = 4
"""Minimum number of characters of an id that identify a cell, provided that only one id begins with them."""
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
EXECUTED = re.compile(r"In ?\[(\d{1,9})\]")
PLACES = re.compile(r"(\d{1,6})(?:\s*-\s*(\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class NotebookCell:
    """One cell; ``index`` counts from 0, ``outputs`` and ``metadata`` are in nbformat."""

    index: int
    id: str
    kind: str
    source: str
    count: int | None
    outputs: tuple[Mapping[str, Any], ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_agent_cell(self) -> bool:
        """Whether the cell starts a turn when it runs, so that no turn may run it."""
        return self.kind == "code" and agent_cells.is_agent_cell(self.source, self.metadata)

    @property
    def label(self) -> str:
        """The kind of the cell as the model reads it. The text of a prompt cell does not count as code."""
        is_prompt = self.kind == "code" and agent_cells.prompt_of(self.source, self.metadata) is not None
        return "prompt" if is_prompt else self.kind

    @property
    def error(self) -> str:
        """The name of the error in the outputs; empty if there is none."""
        errors = [output for output in self.outputs if output.get("output_type") == "error"]
        return str(errors[-1].get("ename") or "error") if errors else ""

    @property
    def line(self) -> str:
        lines = [line.strip() for line in self.source.splitlines() if line.strip()]
        first = lines[0] if lines else "(empty)"
        first = first if len(first) <= LINE else f"{first[:LINE]}..."
        facts = [f"In[{self.count}]"] if self.count else []
        facts += [f"{len(lines)} lines"] if len(lines) > 1 else []
        facts += [f"failed: {self.error}"] if self.error else []
        facts += [f"{len(self.outputs)} outputs"] if self.outputs and not self.error else []
        return f"{self.index} {self.id or '-'} {self.label}: {first}" + (f"  ({', '.join(facts)})" if facts else "")


def cells_of(content: Mapping[str, Any]) -> list[NotebookCell]:
    """Return the cells of ``content``, which may be any JSON object; entries that are not valid cells are skipped."""
    entries = content.get("cells")
    cells = [cell for cell in entries if isinstance(cell, Mapping)] if isinstance(entries, list) else []
    return [_cell(index, cell) for index, cell in enumerate(cells)]


def map_cells(cells: Sequence[NotebookCell], start: int = 0) -> str:
    """Return one line for each of at most MAPPED cells from ``start``."""
    if not cells:
        return "It has no cells."
    lines = [cell.line for cell in cells[start : start + MAPPED]]
    left = len(cells) - start - len(lines)
    if left > 0:
        lines.append(f"{left} more: notebook_cells(start={start + MAPPED})")
    return "\n".join(lines) or f"It has {len(cells)} cells; there is none from {start} on."


def select_cells(cells: Sequence[NotebookCell], selection: str) -> tuple[list[NotebookCell], list[int]]:
    """Parse a selection of cells and execution numbers: ``3, 5-8, ID, In[2]``. Returns (cells, execution numbers).
    Raises InvalidRequest if it names no cell and no execution."""
    by_id = {cell.id: cell for cell in cells if cell.id}
    selected: dict[int, NotebookCell] = {}
    executed: list[int] = []
    for word in filter(None, (word.strip(" '\"") for word in selection.split(","))):
        if word in by_id:
            selected[by_id[word].index] = by_id[word]
        elif number := EXECUTED.fullmatch(word):
            executed.append(int(number[1]))
        elif place := PLACES.fullmatch(word):
            first, last = int(place[1]), int(place[2] or place[1])
            selected |= {cell.index: cell for cell in cells[first : last + 1]}
        else:
            cell = find_cell(cells, word)
            selected[cell.index] = cell
    if not selected and not executed:
        raise InvalidRequest(f"There is no cell {selection[:80]!r}; there are {len(cells)}, numbered from 0.")
    return list(selected.values()), executed


def find_cell(cells: Sequence[NotebookCell], reference: str) -> NotebookCell:
    """Return the cell that ``reference`` names by its id, by a unique prefix of the id (4 characters or more), or by
    its number. Raises InvalidRequest if there is no such cell."""
    word = reference.strip(" '\"")
    matches = [cell for cell in cells if cell.id == word and word]
    if not matches and len(word) >= PREFIX:
        matches = [cell for cell in cells if cell.id.startswith(word)]
    if len(matches) > 1:
        ids = ", ".join(cell.id for cell in matches[:5])
        raise InvalidRequest(f"{word[:80]!r} begins more than one id: {ids}. Give more of the id.")
    if not matches and word.isascii() and word.isdecimal() and len(word) < 7:
        matches = [cell for cell in cells if cell.index == int(word)]
    if not matches:
        raise InvalidRequest(f"There is no cell {word[:80]!r}; notebook_cells lists them.")
    return matches[0]


def read(cells: Sequence[NotebookCell], chars: int = READ_CHARS) -> str:
    """Return the source and outputs of as many cells as fit into ``chars`` characters, followed by the names of the
    others."""
    return read_whole(cells, chars)[0]


def read_whole(cells: Sequence[NotebookCell], chars: int = READ_CHARS) -> tuple[str, list[NotebookCell]]:
    """Return the text that ``read`` returns, and the cells whose complete source the text contains."""
    texts: list[str] = []
    whole: list[NotebookCell] = []
    for count, cell in enumerate(cells):
        share = max(chars // len(cells), chars // 4)
        text = _read(cell, share)
        if texts and len(text) + sum(map(len, texts)) > chars:
            left = ", ".join(str(cell.index) for cell in cells[count : count + 20])
            texts.append(f"{len(cells) - count} cells did not fit: {left}. Read them by themselves.")
            break
        texts.append(text)
        whole += [cell] if shorten(cell.source, share) == cell.source else []
    return "\n\n".join(texts), whole


def _cell(index: int, cell: Mapping[str, Any]) -> NotebookCell:
    count, outputs, metadata = cell.get("execution_count"), cell.get("outputs"), cell.get("metadata")
    return NotebookCell(
        index,
        str(cell.get("id") or "")[:64],
        str(cell.get("cell_type") or "")[:20],
        _join(cell.get("source")),
        count if isinstance(count, int) else None,
        tuple(output for output in outputs if isinstance(output, Mapping)) if isinstance(outputs, list) else (),
        metadata if isinstance(metadata, Mapping) else {},
    )


def _read(cell: NotebookCell, chars: int) -> str:
    head = f"[{cell.index} {cell.id or '-'} {cell.label}" + (f" In[{cell.count}]]" if cell.count else "]")
    outputs = "\n".join(filter(None, (_output(output) for output in cell.outputs)))
    parts = [head, shorten(cell.source, chars)]
    return "\n".join([*parts, f"--> {shorten(outputs, min(OUTPUT_CHARS, chars))}"] if outputs else parts)


def _output(output: Mapping[str, Any]) -> str:
    """Return an output as text: an image as its type and size, HTML only if there is no plain text."""
    kind = output.get("output_type")
    if kind == "stream":
        return ESCAPES.sub("", _join(output.get("text"))).rstrip()
    if kind == "error":
        traceback = output.get("traceback")
        lines = [str(line) for line in traceback] if isinstance(traceback, list) else []
        return ESCAPES.sub("", "\n".join(lines) or f"{output.get('ename')}: {output.get('evalue')}")
    data = output.get("data")
    if not isinstance(data, Mapping):
        return ""
    media = [f"[{mime}, {len(_join(data[mime])) * 3 // 4:,} bytes]" for mime in data if str(mime).startswith("image/")]
    text = _join(data.get("text/markdown") or data.get("text/plain"))
    rest = [f"[{mime}, {len(_join(data[mime])):,} characters]" for mime in data if not media and not text]
    return "\n".join([*media, *rest, text] if text else [*media, *rest])


def _join(text: Any) -> str:
    """Return a text of nbformat as one string. nbformat stores a text as a string or as a list of lines."""
    if isinstance(text, list):
        return "".join(str(line) for line in text)
    return text if isinstance(text, str) else "" if text is None else str(text)

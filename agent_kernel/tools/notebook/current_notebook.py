"""Reads the current notebook of a turn. If a browser page has it open, this is the document in the page, with its
unsaved edits and the active cell; otherwise it is the saved file."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agent_kernel.core.errors import NotFound
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import ToolContext
from agent_kernel.core.recent_entries import RecentEntries
from agent_kernel.core.session import SessionKey
from agent_kernel.tools.base.notebook_access import NotebookAccess, NotebookRunner
from agent_kernel.tools.notebook.cell_map import NotebookCell, cells_of

LIVE_DOCUMENT = "live_document"
"""Name of the request with which the server asks an open page of the notebook for its document. The page returns the
document as JSON in the details of the result."""
MAX_SESSIONS = 200
MAX_CELLS = 2_000
"""Maximum number of cells that are remembered as read for one session."""


@dataclass(frozen=True, slots=True)
class VisibleNotebook:
    """The current content of a notebook. ``named`` is a text from which the model learns where the content comes from.
    ``live`` is true if it comes from an open page. ``active`` is the id of the active cell of that page, and
    ``selected`` are the ids of the cells that are selected there; both are empty if they are unknown."""

    named: str
    cells: list[NotebookCell]
    live: bool = False
    writable: bool = True
    active: str = ""
    selected: tuple[str, ...] = ()


class NotebookView:
    """Reads the notebook. ``page`` is the client that has the notebook open, such as a browser page; None if no client
    has."""

    def __init__(self, notebook: NotebookAccess | None, page: NotebookRunner | None) -> None:
        self._notebook = notebook
        self._page = page

    @property
    def is_there(self) -> bool:
        return self._page is not None or (self._notebook is not None and bool(self._notebook.path))

    async def read(self, context: ToolContext) -> VisibleNotebook:
        """Return the document that is open in a page; if there is none, return the saved notebook. Raises NotFound if
        there is neither, InvalidRequest if the saved notebook cannot be read."""
        if self._page is None:
            return await self._read_saved("later edits are not in it")
        try:
            return await self.live(context)
        except NotFound as error:
            return await self._read_saved(f"later edits are not in it: {error.message}")

    async def live(self, context: ToolContext) -> VisibleNotebook:
        """Return the document that is open in a page. Raises NotFound, which states the reason, if no page answers."""
        if self._page is None:
            raise NotFound("The notebook is not open in a page that could change it.")
        call = ToolCall(context.call.id, LIVE_DOCUMENT, {})
        answer = await self._page.offer(replace(context, call=call))
        if answer.status != "success":
            raise NotFound(answer.text)
        details = answer.details
        selected = details.get("selected")
        return VisibleNotebook(
            f"{_word(details.get('path'))} as it stands open in the page (with edits that are not saved)",
            cells_of(details),
            live=True,
            writable=details.get("writable") is not False,
            active=_word(details.get("active")),
            selected=tuple(map(_word, selected)) if isinstance(selected, list) else (),
        )

    async def _read_saved(self, limit: str) -> VisibleNotebook:
        if self._notebook is None or not self._notebook.path:
            raise NotFound("The notebook was never saved, and no page has it open.")
        document = await self._notebook.document()
        saved = f" {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(document.saved))}" if document.saved else ""
        return VisibleNotebook(f"{document.path} as last saved{saved} ({limit})", cells_of(document.content))


@dataclass(slots=True)
class ReadCellsMemory:
    """Remembers which cell sources the model of a session has read completely, so that the model replaces no source
    that it has not seen.

    The memory belongs to this process and is limited. If a cell was dropped from it, the model must read that cell
    again.
    """

    _sessions: RecentEntries[SessionKey, RecentEntries[str, str]] = field(
        default_factory=lambda: RecentEntries(MAX_SESSIONS)
    )

    def read(self, key: SessionKey, cells: Sequence[tuple[str, str]]) -> None:
        """Record that the model has read these cells. Each is given as (id, source)."""
        hashes = self._sessions[key] = self._sessions.get(key) or RecentEntries(MAX_CELLS)
        for id, source in cells:
            hashes[id] = _hash(source)

    def state(self, key: SessionKey, cell: NotebookCell) -> str:
        """Return ``same`` if the model has read the cell's present source, ``changed`` if it has read an earlier source
        of the cell, and ``unread`` if it has read neither."""
        cells = self._sessions.get(key)
        if cells is None or cell.id not in cells:
            return "unread"
        return "same" if cells[cell.id] == _hash(cell.source) else "changed"


def _hash(source: str) -> str:
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()


def _word(value: object) -> str:
    return value[:1_000] if isinstance(value, str) else ""

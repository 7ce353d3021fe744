"""Selects the cells that the model sees in a turn in place of the conversation, in the order of the notebook."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from agent_kernel.core.errors import NotFound
from agent_kernel.core.events import Notice
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import ToolContext
from agent_kernel.core.turn_request import PageCell
from agent_kernel.tools.base.tool_source import ToolSourceContext
from agent_kernel.tools.notebook.cell_map import NotebookCell, read, select_cells
from agent_kernel.tools.notebook.current_notebook import LIVE_DOCUMENT, NotebookView

ABOVE, NOTHING = "above", "none"
CELL_CHARS = 4_000
ALL_CHARS = 40_000
"""Maximum characters of all cells that are not turns. If there are more, the last cells are kept."""
NO_PAGE = "There is no notebook page here ({reason}), so the model sees the conversation as usual."
NOT_SAVED = "This cell is not saved yet, and no open page reports its position, so it is treated as the last cell."


async def page_cells(view: NotebookView, occasion: ToolSourceContext) -> tuple[PageCell, ...] | None:
    """Return the cells that the request selects. If no browser page has the notebook open, return None and send a
    notice. Raises InvalidRequest for cells that do not exist."""
    request = occasion.request
    if request.page == NOTHING:
        return ()
    call = ToolCall(f"page-{secrets.token_hex(4)}", LIVE_DOCUMENT, {})
    try:
        seen = await view.read(ToolContext(occasion.key, occasion.turn, 0, call, occasion.emit))
    except NotFound as error:
        occasion.emit(Notice("info", NO_PAGE.format(reason=error.message)))
        return None
    if request.page != ABOVE:
        return _to_page_cells(sorted(select_cells(seen.cells, request.page)[0], key=lambda cell: cell.index))
    own = request.cell.partition("#")[0]
    place = next((cell.index for cell in seen.cells if cell.id and cell.id == own), None)
    if place is not None:
        return _to_page_cells([cell for cell in seen.cells if cell.index < place])
    if not seen.live:
        occasion.emit(Notice("info", NOT_SAVED))
    cell_ids = {cell.id for cell in seen.cells} | {own}
    return (*_to_page_cells(seen.cells), *(PageCell(cell) for cell in request.ran if cell not in cell_ids))


def _to_page_cells(cells: Sequence[NotebookCell]) -> tuple[PageCell, ...]:
    converted: list[PageCell] = []
    chars_left = ALL_CHARS
    for cell in reversed(cells):
        text = read([cell], CELL_CHARS) if cell.source.strip() and chars_left > 0 else ""
        chars_left -= len(text)
        converted.append(PageCell(cell.id, text))
    return tuple(reversed(converted))

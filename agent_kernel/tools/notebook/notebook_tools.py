"""Tools for the notebook of the turn: they read its cells, variables and last error, run a cell, and report on jobs.

Each tool works on the turn's own kernel and notebook. No argument can name another one, and no tool writes the file.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_kernel.core.errors import AgentKernelError, InvalidRequest, NotFound
from agent_kernel.core.events import Notice
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import Tool, ToolContext, ToolOutput, ToolSpec
from agent_kernel.core.turn_request import PageCell
from agent_kernel.tools.base.client_call_broker import ClientCallBroker
from agent_kernel.tools.base.notebook_access import NotebookAccess, NotebookCallTool, NotebookRunner
from agent_kernel.tools.base.parameter_schema import parameters
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext, runner_for
from agent_kernel.tools.notebook.cell_edits import RUN, EditContext, check_runnable, edit_tools
from agent_kernel.tools.notebook.cell_map import NotebookCell, cells_of, map_cells, read, read_whole, select_cells
from agent_kernel.tools.notebook.current_notebook import LIVE_DOCUMENT, NotebookView, ReadCellsMemory

GROUP = "notebook"
EXECUTIONS = "executions"
"""Name of the request that asks the kernel what it has executed, by execution number."""
MAX_NUMBERS = 20


CELLS = ToolSpec(
    "notebook_cells",
    "List the cells of the person's notebook: number, id, type, first line, errors; and what ran in its kernel.",
    parameters([], start={"type": "integer", "minimum": 0, "description": "The first cell to list, from 0"}),
    kind="notebook.read",
)
READ = ToolSpec(
    "read_cells",
    "Read cells of the person's notebook with their outputs.",
    parameters(
        ["cells"],
        cells={"type": "string", "description": "Numbers or ids, as '3, 5-8'; 'In[4]' is what ran as number 4"},
    ),
    kind="notebook.read",
)
VARIABLES = ToolSpec(
    "variables",
    "List the variables of the person's kernel with types and sizes; with a name: that one closely (columns, missing "
    "values, first rows).",
    parameters([], name={"type": "string", "description": "One variable"}),
    kind="notebook.read",
    where="live",
)
LAST_ERROR = ToolSpec(
    "last_error",
    "The last cell of the person that failed: its source and traceback.",
    parameters([]),
    kind="notebook.read",
    where="live",
)
RUN_CELL = ToolSpec(
    "run_cell",
    "Run one code cell of the notebook, as it was last saved, in the person's kernel. The result comes to you; the "
    "cell in the notebook stays as it is.",
    parameters(["cell"], cell={"type": "string", "description": "Its number or id"}),
    kind="notebook.run",
    where="live",
)
RUNNING = ToolSpec(
    "running",
    "What you started in the person's kernel and still runs: its output so far. Waits for it, or stops it.",
    parameters(
        [],
        job={"type": "string", "description": "For example j1; without it the newest"},
        wait_s={"type": "number", "minimum": 0, "maximum": 60},
        stop={"type": "boolean"},
    ),
    kind="notebook.read",
    where="live",
)
ABOVE, NOTHING = "above", "none"
CELL_CHARS = 4_000
ALL_CHARS = 40_000
"""Maximum characters of all cells together that the model reads in place of the conversation. If there are more, the
last cells are kept."""
NO_PAGE = "There is no notebook page here ({reason}), so the model sees the conversation as usual."
NOT_SAVED = "This cell is not saved yet, and no open page reports its position, so it is treated as the last cell."


class CellMap:
    spec = CELLS

    def __init__(self, view: NotebookView, side: NotebookRunner | None) -> None:
        self._view = view
        self._side = side

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        texts: list[str] = []
        if self._view.is_there:
            texts.append(await self._map(context, int(arguments.get("start", 0))))
        if self._side is not None:
            texts.append(await _executions(self._side, context))
        return ToolOutput("\n\n".join(texts))

    async def _map(self, context: ToolContext, start: int) -> str:
        try:
            seen = await self._view.read(context)
        except AgentKernelError as error:
            return f"The file cannot be read: {error}"
        at = {cell.id: f"cell {cell.index} ({cell.id})" for cell in seen.cells if cell.id}
        where = f"The person is at {at[seen.active]}.\n" if seen.active in at else ""
        selected = [at[id] for id in seen.selected if id in at]
        if len(selected) > 1:
            where += f"Selected: {', '.join(selected)}.\n"
        return f"{seen.named}: {len(seen.cells)} cells.\n{where}{map_cells(seen.cells, start)}"


class ReadCells:
    """Reads cells. ``memory`` remembers which cells the model has read completely."""

    spec = READ

    def __init__(self, view: NotebookView, side: NotebookRunner | None, memory: ReadCellsMemory) -> None:
        self._view = view
        self._side = side
        self._memory = memory

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        seen = await self._view.read(context) if self._view.is_there else None
        cells, numbers = select_cells(seen.cells if seen else [], str(arguments["cells"]))
        text, whole = read_whole(cells)
        texts = [f"{seen.named}.\n{text}"] if seen and cells else []
        if seen and seen.live:
            self._memory.read(context.key, [(cell.id, cell.source) for cell in whole])
        if numbers and self._side is None:
            texts.append("What ran in the kernel cannot be looked up: no client of the notebook is attached.")
        elif numbers and self._side is not None:
            texts.append(await _executions(self._side, context, numbers[:MAX_NUMBERS]))
        return ToolOutput("\n\n".join(texts))


class RunCell(NotebookCallTool):
    """Runs a cell. The user is asked about the code that the cell contains when the call arrives, and exactly that code
    runs."""

    def __init__(self, notebook: NotebookAccess, runner: NotebookRunner) -> None:
        super().__init__(RUN_CELL, runner)
        self._notebook = notebook

    async def prepare(self, call: ToolCall, context: ToolContext) -> ToolCall:
        document = await self._notebook.document()
        cells, _ = select_cells(cells_of(document.content), str(call.arguments["cell"]))
        if len(cells) != 1:
            raise InvalidRequest("Name exactly one cell.")
        [cell] = cells
        check_runnable(cell, f"Cell {cell.index}")
        return replace(call, arguments={"cell": cell.id or str(cell.index), "code": cell.source})


class NotebookTools:
    """Offers the notebook tools of a turn.

    The notebook's clients (the magic in its kernel, and browser pages that have it open) run the calls of a tool that
    the turn's request declares in ``client_tools``. The server runs the calls of the other tools; a tool that the
    server may not run is not offered. ``run_cell``, which runs a cell without a page, is not offered if an open
    page can run the cell visibly.
    """

    def __init__(self, client_calls: ClientCallBroker) -> None:
        self._client_calls = client_calls
        self._memory = ReadCellsMemory()

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        notebook = occasion.notebook
        tools: list[Tool] = []
        ran = runner_for(occasion, EXECUTIONS, self._client_calls)
        served = self._page_tools(occasion)
        view = NotebookView(notebook, self._client_calls if LIVE_DOCUMENT in served else None)
        page = await page_cells(view, occasion) if occasion.request.page else None
        if ran is not None or view.is_there:
            tools += [CellMap(view, ran), ReadCells(view, ran, self._memory)]
        tools += [
            NotebookCallTool(spec, side)
            for spec in (VARIABLES, LAST_ERROR)
            if (side := runner_for(occasion, spec.name, self._client_calls)) is not None
        ]
        if LIVE_DOCUMENT in served:
            tools += edit_tools(EditContext(view, self._client_calls, self._memory, own=occasion.request.cell), served)
        side = runner_for(occasion, RUN_CELL.name, self._client_calls)
        if side is not None and notebook is not None and notebook.path and RUN.name not in served:
            tools.append(RunCell(notebook, side))
        if notebook is not None and notebook.jobs is not None:
            tools.append(NotebookCallTool(RUNNING, notebook.jobs))
        return OfferedTools(tuple(tool for tool in tools if occasion.wants(GROUP, tool.spec.name)), page=page)

    def _page_tools(self, occasion: ToolSourceContext) -> frozenset[str]:
        """Return the names of the tools that an open page of the notebook runs. If the turn uses a draft, the tools
        that run cells are not among them, because the draft is not the kernel that the page uses."""
        served = occasion.request.client_tools
        return served - {RUN.name} if occasion.request.where == "draft" else served


class NotebookFunctions:
    """Offers functions that the user registered in the notebook. The notebook's client runs them.

    The user is asked before each call, unless the function was registered with ``effects=False`` and the permission
    policy does not demand a question.
    """

    def __init__(self, client_calls: ClientCallBroker) -> None:
        self._client_calls = client_calls

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        request = occasion.request
        specs = [
            replace(
                spec, where="client", source="user", kind=spec.kind if spec.kind == "function" else "function.effects"
            )
            for spec in request.functions
            if spec.name in request.client_tools and spec.where != "caller" and occasion.wants("functions", spec.name)
        ]
        return OfferedTools(tuple(NotebookCallTool(spec, self._client_calls) for spec in specs))


async def _executions(side: NotebookRunner, context: ToolContext, numbers: list[int] | None = None) -> str:
    call = ToolCall(context.call.id, EXECUTIONS, {"numbers": numbers or []})
    ran = await side.offer(replace(context, call=call))
    if ran.status != "success":
        return f"What ran in the kernel is not known: {ran.text}"
    return ran.text if numbers else f"Ran in this kernel:\n{ran.text}"


# Selects the cells that the model sees in a turn in place of the conversation, in the order of the notebook.


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

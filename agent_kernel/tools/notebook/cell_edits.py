"""Defines tools that change the open notebook: insert, edit, delete, move and run cells.

Each call is prepared from the document that is open in the user's browser page, so that the user is asked about the
exact change; the page applies the change only if the cell is still the same. This module never writes the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent_kernel.core.errors import Conflict, InvalidRequest
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import Tool, ToolContext, ToolOutput, ToolSpec
from agent_kernel.permissions.gate import EDIT
from agent_kernel.tools.base.notebook_access import NotebookRunner
from agent_kernel.tools.base.parameter_schema import parameters
from agent_kernel.tools.notebook.cell_map import NotebookCell, cells_of, find_cell, read, select_cells
from agent_kernel.tools.notebook.current_notebook import NotebookView, ReadCellsMemory, VisibleNotebook

START = "start"
MAX_SOURCE = 200_000
"""Maximum characters of an inserted or edited cell."""
MAX_RUN = 50
"""Maximum number of cells that one call can run."""
SHOWN_CHARS = 4_000
"""Maximum characters of a cell's source that an error message contains."""
CELL = {"type": "string", "description": "Its id, the beginning of the id, or its number"}
BELOW = {
    "type": "string",
    "description": f"Id or number of the cell above the place, or '{START}' for the top of the notebook",
}


INSERT = ToolSpec(
    "insert_cell",
    "Insert a cell into the person's open notebook; it does not run. Without 'below' it comes after the cell that you "
    "inserted last, else below the cell where the person is.",
    parameters(
        ["source"],
        source={"type": "string"},
        type={"type": "string", "enum": ["code", "markdown", "raw"], "description": "code if left out"},
        below=BELOW,
    ),
    kind=EDIT,
    where="client",
    editable="after",
)
EDIT_CELL = ToolSpec(
    "edit_cell",
    "Change a cell of the person's open notebook: 'find' (exact text that is in it once) and 'replace', or a whole new "
    "'source'. Read the cell first. It does not run.",
    parameters(["cell"], cell=CELL, find={"type": "string"}, replace={"type": "string"}, source={"type": "string"}),
    kind=EDIT,
    where="client",
    editable="after",
)
DELETE = ToolSpec(
    "delete_cell",
    "Delete a cell of the person's open notebook. Read the cell first.",
    parameters(["cell"], cell=CELL),
    kind=EDIT,
    where="client",
)
MOVE = ToolSpec(
    "move_cell",
    "Move a cell of the person's open notebook below another one.",
    parameters(["cell", "below"], cell=CELL, below=BELOW),
    kind=EDIT,
    where="client",
)
RUN = ToolSpec(
    "run_cells",
    "Run code cells of the person's open notebook in their kernel, one after the other until one fails. The person "
    "sees them run; their outputs come to you.",
    parameters(["cells"], cells={"type": "string", "description": "Numbers or ids, as '3, 5-8'"}),
    kind="notebook.run",
    where="live",
)


@dataclass(slots=True)
class EditContext:
    """State that the edit tools of one turn share. ``known`` remembers which cells the model has read. ``own`` is the
    id of the cell that contains the prompt, and ``last`` the id of the cell that was inserted last."""

    view: NotebookView
    page: NotebookRunner
    known: ReadCellsMemory
    own: str = ""
    last: str = ""

    async def document(self, context: ToolContext) -> VisibleNotebook:
        """Return the document that is open in the browser page. Raises NotFound if no page has it open, and Conflict if
        it may not be changed."""
        seen = await self.view.live(context)
        if not seen.writable:
            raise Conflict("The notebook is read-only; propose the change in your answer instead.")
        return seen

    def changeable(self, notebook: VisibleNotebook, reference: object) -> NotebookCell:
        """Return the cell ``reference``. Raises InvalidRequest if it does not exist or may not be changed."""
        cell = find_cell(notebook.cells, str(reference))
        if cell.id and cell.id == self.own:
            raise InvalidRequest(f"Cell {cell.index} contains the prompt of this turn and cannot be changed.")
        return cell

    def has_read(self, context: ToolContext, cell: NotebookCell) -> None:
        """Raise Conflict unless the model has read the current source of the cell. If the error contains the source,
        the cell counts as read."""
        state = self.known.state(context.key, cell)
        if state == "same":
            return
        why = "has changed since you read it" if state == "changed" else "was not read by you yet"
        if len(cell.source) > SHOWN_CHARS:
            raise Conflict(f"Cell {cell.index} ({cell.id}) {why}, so nothing was done. Read it first: read_cells.")
        self.known.read(context.key, [(cell.id, cell.source)])
        raise Conflict(
            f"Cell {cell.index} ({cell.id}) {why}, so nothing was done. Its present text is:\n{cell.source}\n"
            "Call again if your change still fits."
        )

    def place(self, notebook: VisibleNotebook, below: object) -> str:
        """Return the id of the cell below which a new cell is placed; empty for the top of the notebook. ``below``
        names the cell, or is START for the top. Without ``below`` it is the cell that was inserted last, else the cell
        with the prompt, else the active cell, else the last cell. Raises InvalidRequest if ``below`` names no cell."""
        if isinstance(below, str) and below.strip():
            return "" if below.strip().lower() == START else find_cell(notebook.cells, below).id
        ids = {cell.id for cell in notebook.cells}
        end = notebook.cells[-1].id if notebook.cells else ""
        return next((id for id in (self.last, self.own, notebook.active) if id and id in ids), end)

    async def offer(self, context: ToolContext, kind: str) -> tuple[ToolOutput, str, int]:
        """Send the call to the page that has the notebook open. Return the page's output with the details that are
        needed to undo the change, the id of the cell, and the cell's index (-1 if unknown). ``kind`` is the kind of
        change."""
        answer = await self.page.offer(context)
        if answer.status != "success":
            return replace(answer, details={}), "", -1
        arguments, details = context.call.arguments, answer.details
        cell, index = str(details.get("cell") or arguments.get("cell", ""))[:200], details.get("index")
        index = index if isinstance(index, int) else -1
        change = {
            "do": kind,
            "cell": cell,
            "index": index,
            "turn": context.turn,
            "notebook": str(details.get("notebook", ""))[:1_000],
        }
        change |= {name: arguments[name] for name in ("type", "below", "from", "before", "after") if name in arguments}
        if kind == "delete" and isinstance(details.get("kept"), Mapping):
            change["kept"] = details["kept"]
        return replace(answer, details={"change": change}), cell, index


class CellEdit:
    """A tool that changes one cell. ``kind`` is the kind of the change, which the page that has the notebook open
    receives; ``done`` is the text that the model reads after the change."""

    spec: ToolSpec
    kind: str
    done: str

    def __init__(self, desk: EditContext) -> None:
        self._desk = desk

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        output, cell, index = await self._desk.offer(context, self.kind)
        if not cell:
            return output
        if self.kind == "insert":
            self._desk.last = cell
        if self.kind in ("insert", "edit"):
            self._desk.known.read(context.key, [(cell, arguments["after"])])
        stale = " Its outputs are those of before." if arguments["type"] == "code" else ""
        new = "has the text of the person" if context.edited else "says what you asked for"
        return replace(output, text=self.done.format(cell=cell, index=index, new=new, stale=stale))


class TextEdit(CellEdit):
    """A change of a cell's source, which the person may revise before the page makes it."""

    def revise(self, call: ToolCall) -> ToolCall:
        """Return the call with its ``diff`` computed again, for the text that the person wrote. Raises InvalidRequest
        if that text changes nothing or is too long."""
        before, after = str(call.arguments["before"]), _source(call.arguments["after"])
        if after == before:
            raise InvalidRequest("The text is the same as that of the cell, so nothing would change.")
        summary = str(call.arguments["diff"]).partition("\n")[0]
        return replace(call, arguments={**call.arguments, "diff": _diff(summary, before, after)})


class InsertCell(TextEdit):
    spec = INSERT
    kind = "insert"
    done = "Inserted: it is cell {index} ({cell}) now. It has not run."

    async def prepare(self, call: ToolCall, context: ToolContext) -> ToolCall:
        source, kind = _source(call.arguments["source"]), str(call.arguments.get("type", "code"))
        seen = await self._desk.document(context)
        below = self._desk.place(seen, call.arguments.get("below"))
        diff = _diff(f"a new {kind} cell {_describe_place(seen, below)}", "", source)
        return replace(call, arguments={"type": kind, "below": below, "before": "", "after": source, "diff": diff})


class EditCell(TextEdit):
    spec = EDIT_CELL
    kind = "edit"
    done = "Edited: cell {index} ({cell}) {new}. It has not run.{stale}"

    async def prepare(self, call: ToolCall, context: ToolContext) -> ToolCall:
        arguments = call.arguments
        if ("source" in arguments) == ("find" in arguments) or ("find" in arguments) != ("replace" in arguments):
            raise InvalidRequest("Give either 'source', or 'find' and 'replace'.")
        cell = self._desk.changeable(await self._desk.document(context), arguments["cell"])
        if "source" in arguments:
            self._desk.has_read(context, cell)
            after = _source(arguments["source"])
        else:
            after = _source(_replace(cell, str(arguments["find"]), str(arguments["replace"])))
        if after == cell.source:
            raise InvalidRequest(f"Cell {cell.index} ({cell.id}) already has this text.")
        diff = _diff(_label(cell), cell.source, after)
        changed = {"cell": cell.id, "type": cell.kind, "before": cell.source, "after": after, "diff": diff}
        return replace(call, arguments=changed)


class DeleteCell(CellEdit):
    spec = DELETE
    kind = "delete"
    done = "Deleted: {cell}. The cells below have other numbers now."

    async def prepare(self, call: ToolCall, context: ToolContext) -> ToolCall:
        seen = await self._desk.document(context)
        cell = self._desk.changeable(seen, call.arguments["cell"])
        self._desk.has_read(context, cell)
        above = _id_above(seen, cell)
        diff = _diff(f"{_label(cell)} is deleted", cell.source, "")
        gone = {"cell": cell.id, "type": cell.kind, "from": above, "before": cell.source, "after": "", "diff": diff}
        return replace(call, arguments=gone)


class MoveCell(CellEdit):
    spec = MOVE
    kind = "move"
    done = "Moved: it is cell {index} ({cell}) now."

    async def prepare(self, call: ToolCall, context: ToolContext) -> ToolCall:
        seen = await self._desk.document(context)
        cell = self._desk.changeable(seen, call.arguments["cell"])
        below, above = self._desk.place(seen, call.arguments["below"]), _id_above(seen, cell)
        if below in (cell.id, above):
            raise InvalidRequest(f"Cell {cell.index} ({cell.id}) is already at this position.")
        diff = f"{_label(cell)} moves {_describe_place(seen, below)}"
        moved = {"cell": cell.id, "type": cell.kind, "below": below, "from": above, "before": cell.source}
        return replace(call, arguments={**moved, "after": cell.source, "diff": diff})


class RunCells:
    """Runs cells. The user is asked about the code that the cells contain when the call arrives, and exactly that code
    runs."""

    spec = RUN

    def __init__(self, desk: EditContext) -> None:
        self._desk = desk

    async def prepare(self, call: ToolCall, context: ToolContext) -> ToolCall:
        seen = await self._desk.view.live(context)
        cells, executed = select_cells(seen.cells, str(call.arguments["cells"]))
        if executed or len(cells) > MAX_RUN:
            raise InvalidRequest(f"Name cells by number or id, at most {MAX_RUN}.")
        for cell in cells:
            check_runnable(cell, f"Cell {cell.index} ({cell.id})")
        code = "\n\n".join(cell.source for cell in cells)
        cell_arguments = [{"cell": cell.id, "source": cell.source} for cell in cells]
        return replace(call, arguments={"cells": cell_arguments, "code": code})

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        answer = await self._desk.page.offer(context)
        cells = _executed_cells(answer.details)
        self._desk.known.read(context.key, [(cell.id, cell.source) for cell in cells])
        ran = [{"cell": cell.id, "index": cell.index, "count": cell.count} for cell in cells]
        text = "\n\n".join(filter(None, (answer.text, read(cells) if cells else "")))
        return replace(answer, text=text or "Nothing ran.", details={"ran": ran})


def edit_tools(desk: EditContext, served: frozenset[str]) -> list[Tool]:
    """Return the edit tools whose names are in ``served``, which are the tools that the open page of the notebook can
    run."""
    tools: list[Tool] = [InsertCell(desk), EditCell(desk), DeleteCell(desk), MoveCell(desk), RunCells(desk)]
    return [tool for tool in tools if tool.spec.name in served]


def check_runnable(cell: NotebookCell, name: str) -> None:
    """Raise InvalidRequest unless the agent may run the cell: it must contain code, and no prompt for the agent.
    ``name`` is what the error message calls the cell."""
    if cell.kind != "code" or not cell.source.strip():
        raise InvalidRequest(f"{name} has no code to run.")
    if cell.is_agent_cell:
        raise InvalidRequest(f"Cell {cell.index} is a prompt for you, and you cannot run it.")


def _executed_cells(details: Mapping[str, Any]) -> list[NotebookCell]:
    """Return the cells that ran, with their indices in the notebook. ``details`` are the details of the call's result,
    which come from the browser page that ran the cells."""
    places = [cell.get("index") for cell in details.get("cells") or () if isinstance(cell, Mapping)]
    cells = zip(cells_of(details), places, strict=True)
    return [replace(cell, index=place) if isinstance(place, int) else cell for cell, place in cells]


def _replace(cell: NotebookCell, find: str, put: str) -> str:
    """Return the cell's source with ``find`` replaced by ``put``. Raises InvalidRequest if ``find`` is missing or
    occurs more than once."""
    count = cell.source.count(find) if find else 0
    if count == 1:
        return cell.source.replace(find, put)
    current = f" Its present text is:\n{cell.source}" if len(cell.source) <= SHOWN_CHARS else " Read it: read_cells."
    occurrence = "is not" if not count else f"is {count} times"
    more = " Take more of the lines around it." if count else ""
    raise InvalidRequest(f"That text {occurrence} in cell {cell.index} ({cell.id}).{more}{current}")


def _source(source: object) -> str:
    text = str(source)
    if len(text) > MAX_SOURCE:
        raise InvalidRequest(f"A cell takes at most {MAX_SOURCE:,} characters.")
    return text


def _id_above(notebook: VisibleNotebook, cell: NotebookCell) -> str:
    return notebook.cells[cell.index - 1].id if cell.index else ""


def _label(cell: NotebookCell) -> str:
    """Return the name of the cell in texts for a person. It counts cells from 1, as the notebook does; the model counts
    from 0."""
    return f"cell {cell.index + 1} ({cell.id})"


def _describe_place(notebook: VisibleNotebook, below: str) -> str:
    above = next((cell for cell in notebook.cells if below and cell.id == below), None)
    return f"below {_label(above)}" if above else "at the top"


def _diff(title: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)
    return "\n".join([title, *list(lines)[2 if before and after else 3 :]])  # the header of a single hunk is left out

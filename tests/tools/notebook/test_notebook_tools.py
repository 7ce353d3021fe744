"""Tests which notebook tools a turn gets, and what they request from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest, NotFound
from agent_kernel.core.events import ApprovalRequired
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import CallPreparer, Tool, ToolContext, ToolOutput, ToolSpec
from agent_kernel.core.turn_request import Note, TurnRequest
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.tools.base.client_call_broker import ClientCallBroker
from agent_kernel.tools.base.notebook_access import NotebookRunner, SavedNotebook
from agent_kernel.tools.base.tool_source import ToolSourceContext, gather_tools
from agent_kernel.tools.notebook.notebook_tools import NotebookFunctions, NotebookTools
from agent_kernel.turn.tool_executor import RoundPosition, Toolbox
from tests.tools.asking import context
from tests.turns import KEY

ALL = frozenset({"python", "run_cell", "variables", "last_error", "executions"})
CONTENT: Mapping[str, Any] = {
    "cells": [
        {"cell_type": "code", "id": "one", "source": ["x = 1\n", "x"], "outputs": []},
        {"cell_type": "markdown", "id": "two", "source": "words"},
        {"cell_type": "code", "id": "three", "source": "%%agent\nsay it", "outputs": []},
    ]
}


class Side:
    """Answers with the call's own name and arguments."""

    def __init__(self, status: Any = "success") -> None:
        self.calls: list[ToolCall] = []
        self._status = status

    async def offer(self, context: ToolContext) -> ToolOutput:
        self.calls.append(context.call)
        return ToolOutput(f"{context.call.name} {dict(context.call.arguments)}", self._status)


@dataclass
class Notebook:
    path: str = "folder/name.ipynb"
    kernel: NotebookRunner | None = None
    jobs: NotebookRunner | None = None
    drafts: None = None
    error: Exception | None = None
    content: Mapping[str, Any] = field(default_factory=lambda: CONTENT)

    async def describe_data(self, prompt: str, *, in_draft: bool) -> tuple[Note, ...]:
        return ()

    async def document(self) -> SavedNotebook:
        if self.error:
            raise self.error
        return SavedNotebook(self.path, 0.0, self.content)


async def tools(notebook: Notebook | None, **request: Any) -> dict[str, Tool]:
    client_calls = ClientCallBroker(claim_within_s=0.01)
    occasion = ToolSourceContext(KEY, TurnRequest("p", **request), lambda body: None, notebook=notebook)
    offered = await gather_tools([NotebookTools(client_calls), NotebookFunctions(client_calls)], occasion)
    return {tool.spec.name: tool for tool in offered.tools}


async def call_tool(tool: Tool, **arguments: Any) -> ToolOutput:
    return await tool.call(arguments, context(tool.spec.name, arguments))


@pytest.mark.parametrize(
    ("notebook", "client", "names"),
    [
        (None, frozenset(), set()),
        (None, ALL, {"notebook_cells", "read_cells", "variables", "last_error"}),
        (Notebook(path=""), frozenset(), set()),
        (Notebook(), frozenset(), {"notebook_cells", "read_cells"}),
        (Notebook(), frozenset({"python"}), {"notebook_cells", "read_cells"}),
        (Notebook(), ALL, {"notebook_cells", "read_cells", "variables", "last_error", "run_cell"}),
        (
            Notebook(kernel=Side(), jobs=Side()),
            frozenset(),
            {"notebook_cells", "read_cells", "variables", "last_error", "run_cell", "running"},
        ),
    ],
)
async def test_a_tool_is_offered_where_somebody_can_run_it(
    notebook: Notebook | None, client: frozenset[str], names: set[str]
) -> None:
    assert set(await tools(notebook, client_tools=client)) == names


async def test_a_request_narrows_them_one_by_one_and_as_a_group() -> None:
    assert set(await tools(Notebook(), client_tools=ALL, tools=("variables", "run_cell"))) == {"variables", "run_cell"}
    assert await tools(Notebook(), client_tools=ALL, tools=("python",)) == {}
    assert len(await tools(Notebook(), client_tools=ALL, tools=("notebook",))) == 5


async def test_looking_is_free_and_running_asks() -> None:
    found = await tools(Notebook(kernel=Side(), jobs=Side()))
    kinds = {name: tool.spec.kind for name, tool in found.items()}
    assert kinds.pop("run_cell") == "notebook.run"
    assert set(kinds.values()) == {"notebook.read"}


async def test_a_cell_stands_for_the_code_it_has_now() -> None:
    side = Side()
    tool = (await tools(Notebook(kernel=side)))["run_cell"]
    assert isinstance(tool, CallPreparer)
    prepared = await tool.prepare(ToolCall("c1", "run_cell", {"cell": "0"}), context("run_cell"))
    assert prepared.arguments == {"cell": "one", "code": "x = 1\nx"}
    for cell in ("1", "three", "0-2", "nowhere"):
        with pytest.raises(InvalidRequest):
            await tool.prepare(ToolCall("c1", "run_cell", {"cell": cell}), context("run_cell"))


async def test_the_map_is_told_with_what_ran_or_why_that_is_not_known() -> None:
    told = await call_tool((await tools(Notebook(kernel=Side())))["notebook_cells"])
    assert told.text.startswith(
        "folder/name.ipynb as last saved (later edits are not in it): 3 cells.\n0 one code: x = 1"
    )
    assert told.text.endswith("Ran in this kernel:\nexecutions {'numbers': []}")
    told = await call_tool((await tools(Notebook(kernel=Side("error"))))["notebook_cells"])
    assert "What ran in the kernel is not known: executions" in told.text
    told = await call_tool(
        (await tools(Notebook(error=NotFound("it was never saved"), kernel=Side())))["notebook_cells"]
    )
    assert told.text.startswith("The file cannot be read: it was never saved")
    assert "Ran in this kernel" in told.text


async def test_executions_are_asked_of_whoever_runs_things_in_the_kernel() -> None:
    side = Side()
    told = await call_tool((await tools(Notebook(kernel=side)))["read_cells"], cells="one, In[3]")
    assert told.text.endswith("[0 one code]\nx = 1\nx\n\nexecutions {'numbers': [3]}")
    assert [call.name for call in side.calls] == ["executions"]
    told = await call_tool((await tools(Notebook()))["read_cells"], cells="In[3]")
    assert "cannot be looked up" in told.text


async def test_a_function_of_the_client_is_the_persons_own_and_asks_unless_it_has_no_effects() -> None:
    declared = (
        ToolSpec("tax", "", {"type": "object"}, kind="function"),
        ToolSpec("pay", "", {"type": "object"}, kind="function.effects"),
        ToolSpec("odd", "", {"type": "object"}, kind="notebook.read"),
        ToolSpec("elsewhere", "", {"type": "object"}, kind="dispatch", source="external"),
    )
    found = await tools(None, functions=declared, client_tools=frozenset({"tax", "pay", "odd"}))
    assert {name: (tool.spec.kind, tool.spec.source, tool.spec.where) for name, tool in found.items()} == {
        "tax": ("function", "user", "client"),
        "pay": ("function.effects", "user", "client"),
        "odd": ("function.effects", "user", "client"),
    }


async def test_a_function_can_not_take_the_place_of_a_tool() -> None:
    mine = (ToolSpec("variables", "mine", {"type": "object"}, kind="function"),)
    found = await tools(Notebook(kernel=Side()), functions=mine, client_tools=frozenset({"variables"}))
    assert found["variables"].spec.kind == "notebook.read"


async def test_a_person_is_asked_about_the_code_and_a_cell_that_is_not_there_is_no_question() -> None:
    asked: list[ApprovalRequired] = []

    def yes(required: ApprovalRequired) -> bool:
        asked.append(required)
        return True

    side = Side()
    tool = (await tools(Notebook(kernel=side)))["run_cell"]
    toolbox = Toolbox([tool], Gate(Approvals(), ask=yes))
    calls = [ToolCall("c1", "run_cell", {"cell": "one"}), ToolCall("c2", "run_cell", {"cell": "nowhere"})]
    results = [result async for result in toolbox.run(calls, RoundPosition(KEY, "t1", 1), lambda body: None)]
    assert [required.code for required in asked] == ["x = 1\nx"]
    assert [call.arguments["code"] for call in side.calls] == ["x = 1\nx"], "what was shown is what runs"
    assert [result.status for result in results] == ["success", "error"]

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agent_kernel.core.events import CallOutput, EventBody, Notice, StateLost
from agent_kernel.core.files import RequestedFile
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import RunResult, ToolContext, ToolOutput, Variable
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.tools.base.client_call_broker import ClientCallBroker
from agent_kernel.tools.base.notebook_access import NotebookCallTool
from agent_kernel.tools.base.tool_source import ToolSourceContext
from agent_kernel.tools.code.python import LIVE, PythonTools, ResetPython, SandboxPython
from agent_kernel.tools.code.sandbox_environment import SandboxEnvironment
from tests.tools.sandbox_stand_in import RanSandbox
from tests.turns import KEY

CALL = ToolCall("c1", "python", {"code": "print(1)"})
DONE = RunResult("success", "1\n", value="2")


def context(events: list[EventBody]) -> ToolContext:
    return ToolContext(KEY, "t", 1, CALL, events.append)


async def test_sandboxed_output_is_announced_while_it_comes_and_told_at_the_end() -> None:
    events: list[EventBody] = []
    sandbox = RanSandbox(DONE)
    output = await SandboxPython(SandboxEnvironment(sandbox, (Path("/notebooks"),))).call(
        CALL.arguments, context(events)
    )
    assert (output.text, output.status) == ("1\n2", "success")
    assert events == [CallOutput("c1", "1\n")]
    assert sandbox.read == (Path("/notebooks"),)


async def test_lost_variables_are_told_to_the_person_and_the_model() -> None:
    events: list[EventBody] = []
    tool = SandboxPython(SandboxEnvironment(RanSandbox(replace(DONE, lost="the worker was restarted"))))
    output = await tool.call(CALL.arguments, context(events))
    assert StateLost("the worker was restarted") in events
    assert output.text.startswith("(the worker was restarted)")


async def test_a_layer_that_is_missing_is_told_to_the_person_once_a_turn() -> None:
    events: list[EventBody] = []
    tool = SandboxPython(SandboxEnvironment(RanSandbox(replace(DONE, less="without network"))))
    outputs = [await tool.call(CALL.arguments, context(events)) for _ in range(2)]
    assert events.count(Notice("warning", "without network")) == 1
    assert [output.details["less"] for output in outputs] == ["without network"] * 2


async def test_variables_lost_between_turns_are_told_before_the_first_call() -> None:
    events: list[EventBody] = []
    source = PythonTools(
        SandboxEnvironment(RanSandbox(replace(DONE, lost="gone"), gone="gone")), ClientCallBroker(), 60.0
    )
    offered = await source.offer(ToolSourceContext(KEY, TurnRequest("hi"), events.append))
    assert [note.text for note in offered.notes] == ["gone"]
    await offered.tools[0].call(CALL.arguments, context(events))
    assert events.count(StateLost("gone")) == 1


async def test_given_variables_are_named_to_the_model_and_set_before_the_first_run_only() -> None:
    given = (Variable("df", "arrow", b"x", "pandas.DataFrame"),)
    sandbox = RanSandbox(DONE)
    offered = await PythonTools(SandboxEnvironment(sandbox), ClientCallBroker(), 60.0).offer(
        ToolSourceContext(KEY, TurnRequest("hi", given=given), lambda b: None)
    )
    assert "df (pandas.DataFrame)" in offered.notes[0].text
    for _ in range(2):
        await offered.tools[0].call(CALL.arguments, context([]))
    assert [work.given for work in sandbox.works] == [given, ()]


async def test_wanted_files_stand_in_the_description_and_declared_ones_are_told_missing(tmp_path: Path) -> None:
    tool = SandboxPython(SandboxEnvironment(RanSandbox(DONE, tmp_path), wanted=(RequestedFile("plot.png"),)))
    assert "plot.png" in tool.spec.description
    output = await tool.call({"code": "1", "outputs": [{"name": "b.csv"}]}, context([]))
    assert [(file.name, file.error) for file in output.files] == [("b.csv", "not_produced")]


async def test_reset_forgets_variables_by_a_call_of_its_own() -> None:
    sandbox = RanSandbox(DONE)
    output = await ResetPython(SandboxEnvironment(sandbox)).call({}, context([]))
    assert (sandbox.resets, output.status) == (1, "success")
    assert "files remain" in output.text


async def test_a_turn_that_runs_live_has_the_live_python_only() -> None:
    source = PythonTools(SandboxEnvironment(RanSandbox(DONE)), ClientCallBroker(), 60.0)
    live = await source.offer(ToolSourceContext(KEY, TurnRequest("hi", where="live"), lambda b: None))
    sandboxed = await source.offer(ToolSourceContext(KEY, TurnRequest("hi"), lambda b: None))
    none = await source.offer(ToolSourceContext(KEY, TurnRequest("hi", tools=("shell",)), lambda b: None))
    assert [tool.spec.kind for tool in live.tools] == ["python.live"]
    assert [tool.spec.name for tool in sandboxed.tools] == ["python", "reset_python"]
    assert none.tools == ()


@pytest.mark.parametrize("gone", ["", "gone"])
async def test_an_offer_says_nothing_of_variables_that_are_there(gone: str) -> None:
    offered = await PythonTools(SandboxEnvironment(RanSandbox(DONE, gone=gone)), ClientCallBroker(), 60.0).offer(
        ToolSourceContext(KEY, TurnRequest("hi"), lambda b: None)
    )
    assert bool(offered.notes) == bool(gone)


async def test_live_code_waits_for_a_client_of_the_notebook() -> None:
    client_calls = ClientCallBroker()
    running = asyncio.create_task(
        NotebookCallTool(LIVE, client_calls).call(CALL.arguments, ToolContext(KEY, "t", 1, CALL, lambda b: None))
    )
    await asyncio.sleep(0)
    token, _ = client_calls.claim("t", "c1", "magic")
    client_calls.finish("t", "c1", token, ToolOutput("1"))
    assert (await running).text == "1"

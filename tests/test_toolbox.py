import asyncio
import base64
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.events import Body, CallFinished
from agent_kernel.messages import Media, Message, ToolCall, shortened
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.protocols import Tool, ToolContext, ToolOutput, ToolSpec
from agent_kernel.toolbox import Place, Toolbox
from tests.turns import KEY, SCHEMA, Recorder

PLACE = Place(KEY, "t1", 1)


def call(code: object, number: int = 1, name: str = "python") -> ToolCall:
    return ToolCall(f"c{number}", name, {"code": code})


async def results(tools: list[Tool], calls: list[ToolCall], events: list[Body] | None = None) -> list[Message]:
    toolbox = Toolbox(tools, Gate(Approvals()))
    async with aclosing(toolbox.run(calls, PLACE, (events if events is not None else []).append)) as answers:
        return [message async for message in answers]


class Meeting:
    """A tool whose calls wait for each other."""

    def __init__(self, *, shared_state: bool) -> None:
        self.spec = ToolSpec("meet", "", SCHEMA, kind="function", shared_state=shared_state)
        self.together = 0
        self.most = 0

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        self.together += 1
        self.most = max(self.most, self.together)
        for _ in range(5):
            await asyncio.sleep(0)
        self.together -= 1
        return ToolOutput("met")


@pytest.mark.parametrize(("shared_state", "most"), [(True, 1), (False, 3)])
async def test_calls_that_share_state_run_one_after_the_other_and_others_at_once(shared_state: bool, most: int) -> None:
    tool = Meeting(shared_state=shared_state)
    answers = await results([tool], [call("x", number, "meet") for number in range(3)])
    assert tool.most == most
    assert {message.call_id for message in answers} == {"c0", "c1", "c2"}


async def test_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    (answer,) = await results([Recorder()], [call("x", name="pyhton")])
    assert answer.status == "error"
    assert "There is no tool 'pyhton'; there are: python." in answer.text


async def test_a_tool_says_how_much_of_its_result_a_model_reads() -> None:
    tool = Recorder(lambda code: code * 20_000)
    (usual,) = await results([tool], [call("x")])
    tool.spec = replace(tool.spec, result_chars=15_000)
    (more,) = await results([tool], [call("x")])
    assert len(usual.text) < 6_100
    assert 15_000 < len(more.text) < 15_100


@pytest.mark.parametrize("arguments", [{}, {"code": 3}, {"_raw": "{oops"}])
async def test_arguments_that_do_not_fit_are_refused_before_anything_runs(arguments: dict[str, Any]) -> None:
    tool = Recorder()
    (answer,) = await results([tool], [ToolCall("c", "python", arguments)])
    assert answer.status == "error"
    assert tool.ran == []


async def test_a_schema_that_refers_elsewhere_is_an_answer_and_nothing_is_fetched() -> None:
    tool = Recorder()
    tool.spec = ToolSpec("python", "", {"$ref": "http://127.0.0.1:9/schema.json"}, kind="function")
    (answer,) = await results([tool], [call("x")])
    assert answer.status == "error"
    assert "outside" in answer.text


async def test_pictures_travel_with_the_event_unless_they_were_shown_already() -> None:
    class Painter(Recorder):
        async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
            return ToolOutput("", media=(Media.of("image/png", b"png"),), shown=arguments["code"] == "shown")

    events: list[Body] = []
    answers = await results([Painter()], [call("new", 1), call("shown", 2)], events)
    new, shown = (body for body in events if isinstance(body, CallFinished))
    assert base64.b64decode(new.media[0]["data"]) == b"png"
    assert shown.media == ()
    assert [len(message.media) for message in answers] == [1, 1]


async def test_stopping_a_round_stops_its_parallel_calls() -> None:
    class Forever(Recorder):
        stopped = False

        async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped = True
            return ToolOutput("")

    tool = Forever(shared=False)
    task = asyncio.create_task(results([tool], [call("x")]))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    assert tool.stopped


@given(st.text(max_size=300), st.integers(30, 100))
def test_shortening_keeps_the_head_and_the_tail(text: str, limit: int) -> None:
    short = shortened(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        assert short.startswith(text[: limit * 2 // 3])
        assert short.endswith(text[-(limit - limit * 2 // 3) :])
        assert f"{len(text) - limit} characters left out" in short

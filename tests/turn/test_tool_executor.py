import asyncio
import base64
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.events import CallFinished, EventBody, FileProduced
from agent_kernel.core.files import NOT_PRODUCED, ProducedFile, RequestedFile
from agent_kernel.core.messages import Media, Message, ToolCall, shorten
from agent_kernel.core.protocols import Tool, ToolContext, ToolOutput, ToolSpec
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.sessions.file_registry import FileRegistry
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.tool_executor import RoundPosition, Toolbox
from tests.turns import KEY, SCHEMA, Recorder

PLACE = RoundPosition(KEY, "t1", 1)


def call(code: object, number: int = 1, name: str = "python") -> ToolCall:
    return ToolCall(f"c{number}", name, {"code": code})


async def results(tools: list[Tool], calls: list[ToolCall], events: list[EventBody] | None = None) -> list[Message]:
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


async def test_data_of_pictures_travels_with_the_event_unless_they_were_shown_already() -> None:
    class Painter(Recorder):
        async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
            return ToolOutput("", media=(Media.of("image/png", b"png"),), shown=arguments["code"] == "shown")

    events: list[EventBody] = []
    answers = await results([Painter()], [call("new", 1), call("shown", 2)], events)
    new, shown = (body for body in events if isinstance(body, CallFinished))
    assert base64.b64decode(new.media[0]["data"]) == b"png"
    assert shown.media == ({"mime": "image/png", "hash": Media.of("image/png", b"png").hash, "size": 3},)
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
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait([task])
    assert tool.stopped


@given(st.text(max_size=300), st.integers(30, 100))
def test_shortening_keeps_the_head_and_the_tail(text: str, limit: int) -> None:
    short = shorten(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        assert short.startswith(text[: limit * 2 // 3])
        assert short.endswith(text[-(limit - limit * 2 // 3) :])
        assert f"{len(text) - limit} characters left out" in short


class Maker:
    """A tool that produces the files that its call names; a name with a leading ``+`` is reported as not produced."""

    spec = ToolSpec("make", "", SCHEMA, kind="function")

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        names = str(arguments["code"]).split()
        made = [
            ProducedFile(name[1:], error=NOT_PRODUCED) if name[0] == "+" else ProducedFile(name, b"text\xc3\xa9 of it")
            for name in names
        ]
        return ToolOutput("made", files=tuple(made))


async def produce_files(rounds: list[str], wanted: Sequence[str] = ()) -> tuple[list[Message], list[FileProduced]]:
    """Return the answers, and the files of each round and of the end."""
    store = MemoryStore()
    await store.create(KEY)
    with tempfile.TemporaryDirectory() as directory:
        keeper = FileRegistry(store, Path(directory), output_bytes=1000, upload_bytes=1000)
        toolbox = Toolbox([Maker()], Gate(Approvals()), keeper, wanted=[RequestedFile(name) for name in wanted])
        events: list[EventBody] = []
        answers: list[Message] = []
        for number, code in enumerate(rounds, start=1):
            async with aclosing(toolbox.run([call(code, number, "make")], PLACE, events.append)) as results:
                answers += [message async for message in results]
        await toolbox.end(PLACE, events.append)
        assert [file.name for file in await store.files(KEY)] == [
            event.file["name"] for event in events if isinstance(event, FileProduced)
        ]
    await store.aclose()
    return answers, [event for event in events if isinstance(event, FileProduced)]


async def test_files_of_a_call_are_announced_before_its_end_and_named_to_the_model_with_how_they_begin() -> None:
    (answer,), (event,) = await produce_files(["a.txt"])
    assert event.call == "c1"
    assert event.file["text"] == "texté of it"
    assert answer.text == f"made\nFiles:\n- a.txt (text/plain, 12 bytes, id {event.file['id']})\n    texté of it"


async def test_a_file_that_is_missing_has_one_placeholder_at_the_end_of_the_turn() -> None:
    answers, events = await produce_files(["+a.txt", "+a.txt b.txt"], ["c.md", "./b.txt"])
    assert ["- a.txt: not produced" in answer.text for answer in answers] == [True, True]
    assert [(event.call, event.file["name"], event.file.get("code")) for event in events] == [
        ("c2", "b.txt", None),
        ("", "c.md", "not_produced"),
        ("", "a.txt", "not_produced"),
    ]


async def test_a_file_that_came_later_has_no_placeholder_and_one_is_there_without_any_call() -> None:
    _, events = await produce_files(["+a.txt", "a.txt"])
    assert [event.file.get("code") for event in events] == [None]
    _, events = await produce_files([], ["a.txt"])
    assert [(event.file["name"], event.file["message"]) for event in events] == [("a.txt", "not produced")]

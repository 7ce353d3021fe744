import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import EngineCrashed, EngineError, InvalidRequest
from agent_kernel.core.messages import assistant, user
from agent_kernel.core.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    EngineRequest,
    ReasoningChunk,
    Sampling,
    TextChunk,
    ToolSpec,
)
from agent_kernel.engines.local.infill import Filling, Gap
from agent_kernel.engines.scripted import MAX_SESSIONS, ScriptedEngine
from tests.narrowing import instance_of

TOOL = ToolSpec("python", "", {}, kind="python.sandbox")


async def play_round(
    engine: ScriptedEngine, said: str = "hi", *, tools: bool = True, choice: str = "auto", session: str = "s"
) -> list[Chunk]:
    request = EngineRequest((user(said),), (TOOL,) if tools else (), session=session, tool_choice=choice)
    async with aclosing(engine.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


async def test_a_round_is_reasoning_then_text_then_calls_then_the_end() -> None:
    engine = ScriptedEngine([{"text": "Hello", "deltas": 2, "reasoning": "Hm", "calls": [{"name": "python"}]}])
    chunks = await play_round(engine)
    assert [type(chunk) for chunk in chunks] == [ReasoningChunk, TextChunk, TextChunk, CallChunk, EndChunk]
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)) == "Hello"


async def test_rounds_are_played_in_order_and_looped_ones_again() -> None:
    engine = ScriptedEngine([{"text": "one"}, {"text": "more", "loop": True}])
    texts = [[chunk.text for chunk in await play_round(engine) if isinstance(chunk, TextChunk)] for _ in range(3)]
    assert texts == [["one"], ["more"], ["more"]]


async def test_when_chooses_the_round_by_what_the_person_said() -> None:
    engine = ScriptedEngine([{"when": "plot", "text": "P"}, {"text": "T"}])
    assert TextChunk("T") in await play_round(engine, "hello")
    assert TextChunk("P") in await play_round(engine, "plot it")


async def test_a_script_that_is_used_up_says_so() -> None:
    with pytest.raises(EngineError, match="no round left"):
        await play_round(ScriptedEngine([]))


@pytest.mark.parametrize(
    ("stops", "text", "stopped"), [(("d", "lo"), "Hel", "lo"), (("x",), "Hello world", ""), ((), "Hello world", "")]
)
async def test_a_text_ends_before_the_first_stop_sequence_and_the_end_names_it(
    stops: tuple[str, ...], text: str, stopped: str
) -> None:
    engine = ScriptedEngine([{"text": "Hello world", "calls": [{"name": "python"}]}])
    request = EngineRequest((user("hi"),), (TOOL,), Sampling(stop=stops))
    chunks = [chunk async for chunk in engine.stream(request)]
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)) == text
    end = instance_of(EndChunk, chunks[-1])
    assert (end.stopped, end.reason) == (stopped, "stop" if stopped else "calls")


async def test_without_tools_there_are_no_calls() -> None:
    engine = ScriptedEngine([{"text": "t", "calls": [{"name": "python"}]}])
    assert not any(isinstance(chunk, CallChunk) for chunk in await play_round(engine, tools=False))


async def test_a_request_that_allows_no_tool_gets_no_calls() -> None:
    engine = ScriptedEngine([{"text": "no", "calls": [{"name": "python"}]}])
    chunks = await play_round(engine, choice="none")
    assert not any(isinstance(chunk, CallChunk) for chunk in chunks)
    assert isinstance(chunks[-1], EndChunk)
    assert chunks[-1].reason == "stop"


@pytest.mark.parametrize(("fault", "error"), [("crash", EngineCrashed), ("disk on fire", EngineError)])
async def test_faults_come_after_the_text(fault: str, error: type[Exception]) -> None:
    seen: list[Chunk] = []

    async def play() -> None:
        async for chunk in ScriptedEngine([{"text": "half", "fault": fault}]).stream(EngineRequest((user("x"),))):
            seen.append(chunk)

    with pytest.raises(error):
        await play()
    assert seen == [TextChunk("half")]


async def test_the_second_half_of_a_text_waits_for_the_gate(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps([{"text": "Hello", "deltas": 5, "gate": "go"}]))
    engine = ScriptedEngine(tmp_path / "script.json")
    async with aclosing(engine.stream(EngineRequest((user("hi"),), (), session="s"))) as chunks:
        said = [await anext(chunks), await anext(chunks)]
        waits = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0.1)
        assert not waits.done()
        (tmp_path / "go").touch()
        said += [await waits, *[chunk async for chunk in chunks]]
    assert [chunk.text for chunk in said if isinstance(chunk, TextChunk)] == ["H", "e", "l", "l", "o"]


async def test_a_hanging_round_can_be_closed() -> None:
    task = asyncio.create_task(play_round(ScriptedEngine([{"fault": "hang"}])))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_tokens_are_words_and_the_common_beginning_counts_as_reused() -> None:
    engine = ScriptedEngine([{"text": "two words", "loop": True}])
    first = instance_of(EndChunk, (await play_round(engine, "a b c"))[-1])
    second = instance_of(EndChunk, (await play_round(engine, "a b x"))[-1])
    assert (first.usage.prompt_tokens, first.usage.completion_tokens, first.usage.reused_tokens) == (4, 2, 0)
    assert second.usage.reused_tokens == 3


def test_a_script_can_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps([{"text": "hi"}]))
    assert ScriptedEngine(path).info().state == "ready"


@pytest.mark.parametrize("script", [{"text": "no list"}, ["no object"], [{"txet": "typo"}]])
def test_a_bad_script_is_refused(script: Any) -> None:
    with pytest.raises(InvalidRequest):
        ScriptedEngine(script)


async def test_code_is_completed_by_the_round_that_fits_and_turns_do_not_play_it() -> None:
    engine = ScriptedEngine([{"infill": "len(values)", "deltas": 2, "when": "/ "}, {"text": "Hello."}])

    async def completed(prefix: str) -> list[Filling]:
        async with aclosing(engine.infill(Gap(prefix))) as fillings:
            return [filling async for filling in fillings]

    assert await completed("sum(values) / ") == [Filling("len(v"), Filling("len(values)")]
    assert await completed("sum(values) / ") == await completed("sum(values) / ")
    assert await completed("x") == [Filling(silence="unsupported")]
    assert TextChunk("Hello.") in await play_round(engine)


async def test_a_round_that_continues_an_answer_plays_the_rest_of_its_text() -> None:
    engine = ScriptedEngine([{"text": "one two three", "deltas": 2, "reasoning": "Hm.", "loop": True}])
    request = EngineRequest((user("count"), assistant("one two")), continues=True)
    async with aclosing(engine.stream(request)) as stream:
        *chunks, end = [chunk async for chunk in stream]
    assert chunks == [TextChunk(" th"), TextChunk("ree")]
    assert instance_of(EndChunk, end).usage.completion_tokens == 1
    assert engine.info().continues


async def test_a_server_keeps_few_requests_and_sessions() -> None:
    """Every request stayed in memory as long as the server ran."""
    engine = ScriptedEngine([{"text": "a", "loop": True}], max_recorded=2)
    for n in range(MAX_SESSIONS + 5):
        await play_round(engine, session=f"s{n}")
    assert [request.session for request in engine.requests] == [f"s{MAX_SESSIONS + 3}", f"s{MAX_SESSIONS + 4}"]
    assert len(engine._seen) == MAX_SESSIONS

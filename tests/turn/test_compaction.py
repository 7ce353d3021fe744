"""Tests summaries: their source, what stays verbatim, and that no message is ever lost by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core import token_estimate
from agent_kernel.core.errors import Conflict, EngineError
from agent_kernel.core.messages import Message, ToolCall, assistant, tool_result, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Item, Owner, SessionKey, Turn
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.turn import compaction
from agent_kernel.turn.compaction import ASKED, MAX_CHARS, CompactionPolicy, Compactor, select_older_items
from agent_kernel.turn.turn_writer import TurnWriter
from tests.narrowing import not_none

KEY = SessionKey("local", "s1")
HERE = Owner.here()


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    yield made
    await made.aclose()


async def add_turns(store: SessionStore, turns: int, size: int = 400, *, start: int = 0) -> None:
    for number in range(start, start + turns):
        call = ToolCall(f"c{number}", "python", {"code": f"x{number} = 1"})
        said = [
            user(f"question {number} " + "q" * size),
            assistant("", [call]),
            tool_result(call, f"result {number}", "success"),
            assistant(f"answer {number}"),
        ]
        await store.add_turn(Turn(f"t{number}", KEY), said)


def writer(*texts: str, length: int = 8_000) -> ScriptedEngine:
    return ScriptedEngine([{"text": text} for text in texts], context_length=length)


async def test_older_turns_are_summarised_and_the_recent_ones_are_not(store: MemoryStore) -> None:
    await add_turns(store, 20)
    engine = writer("They asked twenty questions.")
    made = not_none(await Compactor(TurnWriter(store, HERE)).compact(KEY, engine, "full"))
    assert (made.text, made.model, made.reason) == ("They asked twenty questions.", "scripted", "full")
    assert made.usage["completion_tokens"] == 4
    material = engine.requests[0].messages[1].text
    items = await store.latest(KEY)
    recent = [item for item in items if item.seq > made.last]
    assert recent[0].message.text.startswith("question")
    assert token_estimate.total_chars(item.message for item in recent) <= token_estimate.prompt_budget(8_000) * 0.3
    assert "question 0 " in material
    assert recent[0].message.text not in material
    assert "ASSISTANT calls python: x0 = 1\nRESULT of python (success): result 0" in material
    assert len(items) == 80


async def test_the_next_summary_is_made_of_the_last_one_and_what_followed(store: MemoryStore) -> None:
    await add_turns(store, 20)
    engine = writer("first summary", "second summary")
    compactor = Compactor(TurnWriter(store, HERE))
    first = await compactor.compact(KEY, engine, "full")
    await add_turns(store, 20, start=20)
    second = not_none(await compactor.compact(KEY, engine, "full"))
    material = engine.requests[1].messages[1].text
    assert "first summary" in material
    assert "question 0 " not in material
    assert "question 20 " in material
    assert not_none(first).last < second.last
    assert [summary.text for summary in await store.summaries(KEY)] == ["first summary", "second summary"]


async def test_a_conversation_too_long_for_one_request_takes_several(store: MemoryStore) -> None:
    await add_turns(store, 60)
    engine = ScriptedEngine([{"text": "so far", "loop": True}], context_length=2_000)
    made = await Compactor(TurnWriter(store, HERE)).compact(KEY, engine, "full")
    rows = await store.summaries(KEY)
    assert len(rows) == len(engine.requests) > 1
    assert made == rows[-1]
    for request in engine.requests:
        assert token_estimate.total_chars(request.messages) < 2_000 * token_estimate.CHARS_PER_TOKEN
        assert request.sampling.max_tokens is not None


async def test_taking_a_summary_back_leaves_the_one_before(store: MemoryStore) -> None:
    await add_turns(store, 20)
    compactor = Compactor(TurnWriter(store, HERE))
    engine = writer("first", "second")
    await compactor.compact(KEY, engine, "full")
    await add_turns(store, 20, start=20)
    await compactor.compact(KEY, engine, "full")
    assert not_none(await compactor.undo(KEY)).text == "second"
    assert [summary.text for summary in await store.summaries(KEY)] == ["first"]
    assert len(await store.latest(KEY)) == 160


async def test_what_a_person_asks_for_is_done_also_when_it_would_fit(store: MemoryStore) -> None:
    await add_turns(store, 6)
    compactor = Compactor(TurnWriter(store, HERE))
    assert await compactor.compact(KEY, writer("no", length=100_000), "full") is None
    made = not_none(await compactor.compact(KEY, writer("short"), ASKED))
    kept = [item.turn for item in await store.latest(KEY) if item.seq > made.last]
    assert kept[-1] == "t5"


@pytest.mark.parametrize("turns", [0, 1])
async def test_where_nothing_is_old_nothing_is_asked(store: MemoryStore, turns: int) -> None:
    await store.create(KEY)
    await add_turns(store, turns)
    engine = writer("no")
    assert await Compactor(TurnWriter(store, HERE)).compact(KEY, engine) is None
    assert engine.requests == []


async def test_a_failure_keeps_everything_and_ends_the_claim(store: MemoryStore) -> None:
    await add_turns(store, 20)
    compactor = Compactor(TurnWriter(store, HERE))
    broken = ScriptedEngine([{"text": "half", "fault": "out of order"}, {"text": "  "}], context_length=8_000)
    for _ in range(2):
        with pytest.raises(EngineError):
            await compactor.compact(KEY, broken)
    assert await store.summaries(KEY) == []
    assert await compactor.compact(KEY, writer("now"))


async def test_a_summary_that_is_stopped_leaves_nothing_behind(store: MemoryStore) -> None:
    await add_turns(store, 20)
    hanging = ScriptedEngine([{"text": "half", "fault": "hang"}], context_length=8_000)
    task = asyncio.create_task(Compactor(TurnWriter(store, HERE)).compact(KEY, hanging))
    while not hanging.requests:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.summaries(KEY) == []
    assert await store.claim_summary(KEY, HERE)


async def test_two_servers_on_one_file_make_one_summary(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "s.db") for _ in range(2)]
    try:
        await add_turns(stores[0], 20)
        engines = [ScriptedEngine([{"text": f"by {n}", "delay": 0.1}], context_length=8_000) for n in range(2)]
        owners = [Owner(f"server {n}", n + 1) for n in range(2)]
        tries = [
            Compactor(TurnWriter(s, o)).compact(KEY, e, "full") for s, o, e in zip(stores, owners, engines, strict=True)
        ]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict", "Summary"]
        assert len(await stores[0].summaries(KEY)) == 1
        assert sum(len(engine.requests) for engine in engines) == 1
    finally:
        for made in stores:
            await made.aclose()


async def test_when_the_branch_changes_meanwhile_nothing_is_written(store: MemoryStore) -> None:
    await add_turns(store, 20)

    class Changing(ScriptedEngine):
        async def stream(self, request: Any) -> Any:
            await store.branch(KEY, before="t1")
            async for chunk in super().stream(request):
                yield chunk

    with pytest.raises(Conflict):
        await Compactor(TurnWriter(store, HERE)).compact(KEY, Changing([{"text": "late"}], context_length=8_000))
    assert await store.summaries(KEY) == []
    assert await store.claim_summary(KEY, HERE)


async def test_a_summary_has_a_bounded_length_and_no_keys(store: MemoryStore) -> None:
    await add_turns(store, 20)
    key = "sk-" + "proj-abcdEFGH0123ijklMNOP"
    engine = writer(f"They use {key}. " + "word " * 5_000)
    made = not_none(await Compactor(TurnWriter(store, HERE)).compact(KEY, engine))
    assert len(made.text) <= MAX_CHARS + 100
    assert made.text.startswith("They use [REDACTED:openai_key].")


async def test_it_is_due_at_the_threshold_and_not_again_for_some_turns(store: MemoryStore) -> None:
    await add_turns(store, 20)
    compactor = Compactor(TurnWriter(store, HERE))
    assert not await compactor.due(KEY, 0.79)
    assert await compactor.due(KEY, 0.8)
    await compactor.compact(KEY, writer("s"), "full")
    await add_turns(store, 4, start=20)
    assert not await compactor.due(KEY, 0.99)
    await add_turns(store, 1, start=24)
    assert await compactor.due(KEY, 0.99)


async def test_after_three_failures_in_a_row_only_a_person_can_try_again(store: MemoryStore) -> None:
    await add_turns(store, 20)
    compactor = Compactor(TurnWriter(store, HERE))
    broken = ScriptedEngine([{"fault": "no", "loop": True}], context_length=8_000)
    for _ in range(3):
        assert await compactor.due(KEY, 0.9)
        with pytest.raises(EngineError):
            await compactor.compact(KEY, broken, "full")
    assert not await compactor.due(KEY, 0.9)
    await compactor.compact(KEY, writer("at last"))
    assert not compactor.has_given_up(KEY)


async def test_off_is_off(store: MemoryStore) -> None:
    await add_turns(store, 20)
    assert not await Compactor(TurnWriter(store), CompactionPolicy(auto=False)).due(KEY, 1.0)


async def test_failed_turns_are_no_part_of_it(store: MemoryStore) -> None:
    await add_turns(store, 19)
    opened = await store.open_turn(Turn("bad", KEY), HERE)
    session = not_none(await store.info(KEY))
    await store.append(opened, HERE, [user("the failed question")], session.head)
    await store.close_turn(opened, HERE, "failed", "no")
    await add_turns(store, 10, start=30)
    engine = ScriptedEngine([{"text": "s", "loop": True}], context_length=8_000)
    await Compactor(TurnWriter(store, HERE)).compact(KEY, engine, "full")
    assert not any("the failed question" in request.messages[1].text for request in engine.requests)


TURNS = st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 3)), max_size=20)


@settings(max_examples=60)
@given(TURNS, st.integers(0, 20_000))
def test_a_head_ends_with_a_whole_turn_and_the_newest_turn_is_never_in_it(
    turns: list[tuple[int, int]], kept: int
) -> None:
    items: list[Item] = []
    for number, (size, calls) in enumerate(turns):
        said: list[Message] = [user("q" * size)]
        for at in range(calls):
            call = ToolCall(f"{at}", "python", {})
            said += [assistant("", [call]), tool_result(call, "r" * size, "success")]
        items += [Item(len(items) + at, f"t{number}", message, 0.0) for at, message in enumerate(said, 1)]
    old = select_older_items(items, kept)
    recent = items[len(old) :]
    assert items[: len(old)] == old
    assert not turns or recent
    assert not {item.turn for item in old} & {item.turn for item in recent}
    newest = [item for item in items if turns and item.turn == f"t{len(turns) - 1}"]
    assert token_estimate.total_chars(i.message for i in recent) <= max(
        kept, token_estimate.total_chars(i.message for i in newest)
    )


def test_what_is_shown_to_the_model_of_a_message_is_bounded() -> None:
    arguments: Mapping[str, Any] = {"code": "y" * 50_000}
    call = ToolCall("c", "python", arguments)
    said = [user("q" * 50_000), assistant("", [call]), tool_result(call, "r" * 50_000, "error")]
    items = [Item(at, "t", message, 0.0) for at, message in enumerate(said, 1)]
    assert len(compaction._material(items)) < 6_000

"""Tests usage reports: by model, day, branch and tool, each turn counted once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from agent_kernel.core.events import CallFinished, TextDelta
from agent_kernel.core.messages import Usage, assistant, user
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.usage_report import CallTally, account
from agent_kernel.turn.agent import Agent
from agent_kernel.turn.compaction import Compactor
from agent_kernel.turn.turn_writer import TurnWriter
from tests.scripted import python
from tests.turns import KEY, Recorder

NOON = 1_750_000_000.0
DAY = 86_400.0


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    yield made
    await made.aclose()


async def spend(
    store: MemoryStore, id: str, model: str, *, key: SessionKey = KEY, day: int = 0, **usage: float
) -> None:
    turn = Turn(id, key, model=model, opened=NOON + day * DAY)
    await store.add_turn(turn, [user("q"), assistant("a")], usage=Usage.from_json(usage))


async def test_tokens_are_summed_by_model_and_day(store: MemoryStore) -> None:
    await spend(store, "t1", "small", prompt_tokens=100, completion_tokens=10, reused_tokens=5, seconds=1.5)
    await spend(store, "t2", "big", day=1, prompt_tokens=200, completion_tokens=20, seconds=2.0)
    await spend(store, "t3", "small", day=1, prompt_tokens=1, completion_tokens=2, estimated=True)
    whole = (await account(store, [KEY])).to_json()
    assert whole["total"] == {
        "turns": 3,
        "summaries": 0,
        "prompt_tokens": 301,
        "completion_tokens": 32,
        "reused_tokens": 5,
        "seconds": 3.5,
        "estimated": True,
    }
    assert {name: cost["prompt_tokens"] for name, cost in whole["models"].items()} == {"big": 200, "small": 101}
    assert [cost["turns"] for cost in whole["days"].values()] == [1, 2]
    assert not whole["models"]["big"]["estimated"]
    assert whole["states"] == {"committed": 3}


async def test_a_turn_that_two_branches_show_counts_once(store: MemoryStore) -> None:
    await spend(store, "t1", "small", prompt_tokens=100)
    await spend(store, "t2", "small", prompt_tokens=10)
    await store.branch(KEY, before="t2", name="other")
    await spend(store, "t3", "small", prompt_tokens=1)
    whole = (await account(store, [KEY])).to_json()
    assert whole["total"]["prompt_tokens"] == 111
    assert {name: cost["prompt_tokens"] for name, cost in whole["branches"].items()} == {"main": 110, "other": 1}


async def test_several_sessions_are_one_account(store: MemoryStore) -> None:
    other = SessionKey("local", "s2")
    await spend(store, "t1", "small", prompt_tokens=100)
    await spend(store, "t1", "small", key=other, prompt_tokens=1)
    sessions = await store.list("local")
    assert (await account(store, sessions)).total.prompt_tokens == 101


async def test_a_summary_costs_too(store: MemoryStore) -> None:
    for number in range(4):
        await spend(store, f"t{number}", "small", prompt_tokens=1)
    await Compactor(TurnWriter(store)).compact(KEY, ScriptedEngine([{"text": "short and sweet"}]))
    whole = await account(store, [KEY])
    assert (whole.total.turns, whole.total.summaries) == (4, 1)
    assert whole.models["scripted"].completion_tokens == 3


async def test_a_turn_records_what_its_tools_did(store: MemoryStore) -> None:
    def answer(code: str) -> str:
        if code == "bad":
            raise ValueError(code)
        return code

    script: list[Mapping[str, Any]] = [
        {"calls": [python("good"), python("bad"), {"name": "none", "arguments": {}}]},
        {"text": "done"},
    ]
    gate = Gate(Approvals(), answers=frozenset("*"))
    await Agent(store, ScriptedEngine(script), KEY, [Recorder(answer)], gate=gate).run("go")
    [turn] = await store.turns(KEY)
    assert turn.record["calls"]["python"]["outcomes"] == {"error": 1, "success": 1}
    assert turn.record["tools"] == ["python"]
    tools = (await account(store, [KEY])).tools
    assert (tools["python"].count, tools["none"].outcomes) == (2, {"error": 1})
    assert tools["python"].seconds >= 0


async def test_a_turn_without_calls_records_none(store: MemoryStore) -> None:
    await Agent(store, ScriptedEngine([{"text": "done"}]), KEY).run("go")
    assert "calls" not in (await store.turns(KEY))[0].record


async def test_what_another_version_wrote_into_a_record_is_no_problem(store: MemoryStore) -> None:
    await store.add_turn(Turn("t1", KEY, record={"calls": ["python"]}), [user("q"), assistant("a")])
    assert (await account(store, [KEY])).to_json()["tools"] == {}


def test_a_tally_counts_results_only() -> None:
    tally = CallTally()
    tally.note(TextDelta("x"))
    assert tally.record == {}
    for status in ("success", "denied", "success"):
        tally.note(CallFinished("c", "python", status, "", 0.25))
    calls = {"python": {"count": 3, "seconds": 0.75, "outcomes": {"denied": 1, "success": 2}}}
    assert tally.record == {"calls": calls}

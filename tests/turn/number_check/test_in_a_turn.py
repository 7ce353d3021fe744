"""Tests that the numbers of an answer are reported at the end of its turn, and again when the turn is read from the
store.
"""

from __future__ import annotations

from typing import Any

import pytest

from agent_kernel.core.events import AnswerChecked, EventBody, TurnFinished
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent
from jupyter_ext.turns.stored_events import stored_bodies
from tests.scripted import python
from tests.turns import KEY, Recorder, agent

CALLS: list[dict[str, Any]] = [{"calls": [python("mean")]}, {"text": "It is 41.3, up 7%."}]


def mean(code: str) -> str:
    return f"rows 150\n{code} 41.2871"


async def announced_bodies(it: Agent, prompt: str = "?") -> list[EventBody]:
    return [event.body async for event in it.stream(prompt)]


async def test_they_are_told_just_before_the_end_and_kept_with_the_turn() -> None:
    it, store, _ = agent(CALLS, [Recorder(mean)])
    told, end = (await announced_bodies(it))[-2:]
    assert isinstance(told, AnswerChecked)
    assert isinstance(end, TurnFinished)
    first, second = told.numbers
    assert (first["text"], first["status"], first["line"], first["shown"]) == ("41.3", "computed", 2, "mean 41.2871")
    assert (second["text"], second["status"]) == ("7%", "open")
    assert told.summary_line == "1 of 2 numbers was not computed: 7%"
    (turn,) = await store.turns(KEY)
    messages = [item.message for item in await store.of_turn(turn)]
    assert told in list(stored_bodies(turn, messages))


async def test_a_later_turn_may_use_what_an_earlier_one_computed() -> None:
    it, _, _ = agent([*CALLS, {"text": "As I said: 41.3."}], [Recorder(mean)])
    first = await announced_bodies(it)
    again = await announced_bodies(it, "again?")
    calls = [body.numbers[0]["call"] for body in (*first, *again) if isinstance(body, AnswerChecked)]
    assert len(calls) == 2
    assert len(set(calls)) == 1


async def test_an_output_that_the_model_no_longer_sees_counts() -> None:
    answer = {"text": "As I said: 41.3, not 55.5."}
    it, store, _ = agent([*CALLS, answer], [Recorder(mean)])
    await it.run("?")
    await it.run(TurnRequest("again?", history_limit=0))
    (_, turn) = await store.turns(KEY)
    messages = [item.message for item in await store.of_turn(turn)]
    (checked,) = [body for body in stored_bodies(turn, messages) if isinstance(body, AnswerChecked)]
    assert [number["status"] for number in checked.numbers] == ["computed", "open"]


async def test_small_talk_is_left_alone() -> None:
    it, store, _ = agent([{"text": "There are 12 months."}])
    assert not [body for body in await announced_bodies(it) if isinstance(body, AnswerChecked)]
    (turn,) = await store.turns(KEY)
    assert "numbers" not in turn.record


async def test_it_can_be_switched_off() -> None:
    it = Agent(MemoryStore(), ScriptedEngine(CALLS), KEY, [Recorder(mean)], check_numbers=False)
    assert not [body for body in await announced_bodies(it) if isinstance(body, AnswerChecked)]


async def test_a_secret_in_a_line_is_not_told() -> None:
    secret = "sk-proj-" + "a1B2" * 12
    it, _, _ = agent(CALLS, [Recorder(lambda code: f"key {secret} {code} 41.2871")])
    (told,) = [body for body in await announced_bodies(it) if isinstance(body, AnswerChecked)]
    assert secret not in str(told)
    assert told.numbers[0]["status"] == "computed"


@pytest.mark.parametrize(
    ("statuses", "told"),
    [
        ([], ""),
        (["computed", "given", "code"], ""),
        (["open"], "1 of 1 number was not computed: n0"),
        (["open", "given", "open"], "2 of 2 numbers were not computed: n0, n2"),
    ],
)
def test_the_line_below_an_answer(statuses: list[str], told: str) -> None:
    body = AnswerChecked(tuple({"text": f"n{at}", "status": status} for at, status in enumerate(statuses)))
    assert body.summary_line == told


def test_a_long_list_is_cut() -> None:
    body = AnswerChecked(tuple({"text": "9", "status": "open"} for _ in range(20)))
    assert body.summary_line.endswith("9 and 8 more")

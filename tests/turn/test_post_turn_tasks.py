"""Tests the tasks after a turn: summaries and titles in the background, and the data that the turn releases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any, TypeAlias

import pytest

from agent_kernel.core.errors import Conflict
from agent_kernel.core.events import ContextBuilt, EventBody, Notice
from agent_kernel.core.session import Owner
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent
from agent_kernel.turn.agent_options import TurnServices
from agent_kernel.turn.compaction import CompactionPolicy, Compactor
from agent_kernel.turn.context import SUMMARY
from agent_kernel.turn.post_turn_tasks import PostTurnTasks
from agent_kernel.turn.turn_writer import TurnWriter
from tests.narrowing import not_none
from tests.turns import KEY

LONG = "word " * 240
POLICY = CompactionPolicy(threshold=0.5, turns_between=2)
ON_DEMAND = CompactionPolicy(auto=False)


def works_in_background() -> bool:
    return any(task.get_name().startswith("background work") for task in asyncio.all_tasks())


class World:
    """A session whose model has 3,000 tokens of context, so that a few turns fill it."""

    def __init__(self, script: list[dict[str, Any]], policy: CompactionPolicy = POLICY, **options: Any) -> None:
        self.store = MemoryStore()
        self.turn_writer = TurnWriter(self.store)
        self.engine = ScriptedEngine(script, context_length=3_000)
        self.compactor = Compactor(self.turn_writer, policy)
        self.post_turn_tasks = PostTurnTasks(self.store, self.compactor, **options)
        self.bodies: list[EventBody] = []

    async def ask(self, prompt: str) -> str:
        agent = Agent(self.store, self.engine, KEY, services=TurnServices(self.turn_writer, self.post_turn_tasks))
        return (await agent.turn(TurnRequest(prompt), self.bodies.append)).text

    async def settle(self) -> None:
        while works_in_background():
            await asyncio.sleep(0)

    @property
    def notices(self) -> list[str]:
        return [body.text for body in self.bodies if isinstance(body, Notice)]

    async def summaries(self) -> list[str]:
        return [summary.text for summary in await self.store.summaries(KEY)]


MakeWorld: TypeAlias = Callable[..., World]


@pytest.fixture
async def make_world() -> AsyncIterator[MakeWorld]:
    made: list[World] = []

    def make(script: list[dict[str, Any]], *arguments: Any, **options: Any) -> World:
        made.append(World(script, *arguments, **options))
        return made[-1]

    yield make
    for world in made:
        await world.post_turn_tasks.aclose()
        await world.store.aclose()


CONDENSE = "Write the summary of all this now"


async def test_a_full_context_is_summarised_after_the_answer_and_the_next_turn_goes_on_from_there(
    make_world: MakeWorld,
) -> None:
    world = make_world([{"when": CONDENSE, "text": "They say word.", "loop": True}, {"text": LONG, "loop": True}])
    for number in range(6):
        await world.ask(f"{number} {LONG}")
        await world.settle()
        if await world.summaries():
            break
    assert await world.summaries() == ["They say word."]
    await world.ask("and now?")
    request = world.engine.requests[-1]
    assert request.messages[1].text == f"{SUMMARY}\nThey say word."
    assert request.messages[1].hidden
    assert "0 word" not in request.messages[2].text
    assert world.notices[0].startswith("Earlier turns were summarised for the model")
    assert [body.summary for body in world.bodies if isinstance(body, ContextBuilt)][-1]
    assert len(await world.store.latest(KEY)) == 2 * (number + 2)


async def test_the_front_of_the_prompt_changes_only_when_a_summary_is_made(make_world: MakeWorld) -> None:
    world = make_world([{"when": CONDENSE, "text": "short", "loop": True}, {"text": "ok", "loop": True}])
    for number in range(12):
        await world.ask(f"{number} {LONG}")
        await world.settle()
    asked = [r.messages for r in world.engine.requests if CONDENSE not in r.messages[-1].text]
    changes = sum(after[: len(before)] != before for before, after in pairwise(asked))
    assert changes == len(await world.summaries()) > 0


async def test_a_turn_that_begins_stops_the_summary_and_both_are_well(make_world: MakeWorld) -> None:
    world = make_world([{"when": CONDENSE, "fault": "hang"}, {"text": LONG, "loop": True}])
    for number in range(4):
        await world.ask(f"{number} {LONG}")
    while not any(CONDENSE in request.messages[-1].text for request in world.engine.requests):
        await asyncio.sleep(0)
    assert works_in_background()
    assert await world.ask("are you there?") == LONG
    assert await world.summaries() == []


async def test_closing_stops_it_too_and_nothing_begins_after(make_world: MakeWorld) -> None:
    world = make_world([{"when": CONDENSE, "fault": "hang"}, {"text": LONG, "loop": True}])
    for number in range(4):
        await world.ask(f"{number} {LONG}")
    await asyncio.sleep(0)
    await world.post_turn_tasks.aclose()
    assert not works_in_background()
    await world.ask("more")
    assert not works_in_background()
    assert await world.store.claim_summary(KEY, Owner("another", 1))


async def test_three_failures_are_told_once_and_older_turns_are_left_out_instead(make_world: MakeWorld) -> None:
    world = make_world([{"when": CONDENSE, "fault": "no", "loop": True}, {"text": LONG, "loop": True}])
    for number in range(10):
        await world.ask(f"{number} {LONG}")
        await world.settle()
    assert sum(CONDENSE in request.messages[-1].text for request in world.engine.requests) == 3
    assert len(world.notices) == 1
    assert "could not be summarised 3 times" in world.notices[0]
    assert [body.dropped for body in world.bodies if isinstance(body, ContextBuilt)][-1] > 0


async def test_a_person_may_ask_for_a_summary_and_take_it_back(make_world: MakeWorld) -> None:
    world = make_world([{"when": CONDENSE, "text": "brief", "loop": True}, {"text": "ok", "loop": True}], ON_DEMAND)
    for number in range(6):
        await world.ask(f"question {number} {LONG}")
    made = not_none(await world.post_turn_tasks.compact(KEY, world.engine))
    assert (made.text, made.reason) == ("brief", "asked for")
    while await world.compactor.undo(KEY):
        assert len(await world.store.latest(KEY)) == 12
    await world.ask("now")
    assert not any("brief" in message.text for message in world.engine.requests[-1].messages)
    assert await world.post_turn_tasks.compact(KEY, world.engine) is not None


async def test_one_that_was_asked_for_gives_way_and_says_so(make_world: MakeWorld) -> None:
    world = make_world([{"when": CONDENSE, "fault": "hang"}, {"text": "ok", "loop": True}], ON_DEMAND)
    for number in range(6):
        await world.ask(f"question {number} {LONG}")
    asked = [asyncio.create_task(world.post_turn_tasks.compact(KEY, world.engine)) for _ in range(2)]
    while not works_in_background():
        await asyncio.sleep(0)
    await world.ask("now")
    for task in asked:
        with pytest.raises(Conflict, match="a turn of this session began"):
            await task
    assert sum(CONDENSE in request.messages[-1].text for request in world.engine.requests) <= 1


async def test_one_that_was_asked_for_waits_for_what_is_being_done(make_world: MakeWorld) -> None:
    script = [{"when": CONDENSE, "text": "brief", "delay": 0.05, "loop": True}, {"text": LONG, "loop": True}]
    world = make_world(script)
    for number in range(4):
        await world.ask(f"{number} {LONG}")
    assert works_in_background()
    await world.post_turn_tasks.compact(KEY, world.engine)
    assert set(await world.summaries()) == {"brief"}


async def test_a_new_session_is_called_as_it_begins(make_world: MakeWorld) -> None:
    world = make_world([{"text": "ok", "loop": True}])
    key = "sk-" + "proj-abcdEFGH0123ijklMNOP"
    await world.ask(f"Use {key} please")
    assert not_none(await world.store.info(KEY)).title == "Use [REDACTED:openai_key] please"


@pytest.mark.parametrize(("given", "title"), [("", "Rainfall in Seattle"), ("mine", "mine")])
async def test_the_model_may_name_a_new_session_but_not_one_that_a_person_named(
    make_world: MakeWorld, given: str, title: str
) -> None:
    script = [{"when": "Write a title", "text": "Rainfall in Seattle", "loop": True}, {"text": "ok", "loop": True}]
    world = make_world(script, titles="engine")
    if given:
        await world.store.create(KEY, given)
    await world.ask("Plot the rain")
    await world.settle()
    await world.ask("again")
    await world.settle()
    assert not_none(await world.store.info(KEY)).title == title
    asked = sum("Write a title" in request.messages[-1].text for request in world.engine.requests)
    assert asked == (0 if given else 1)


async def test_without_titles_a_session_has_none(make_world: MakeWorld) -> None:
    world = make_world([{"text": "ok", "loop": True}], titles="off")
    await world.ask("Plot the rain")
    assert not_none(await world.store.info(KEY)).title == ""

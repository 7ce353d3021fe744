from __future__ import annotations

import pytest

from agent_kernel.core.errors import TurnNotFound
from agent_kernel.core.events import (
    CallFinished,
    CallStarted,
    Event,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
    TurnStarted,
)
from agent_kernel.core.messages import Media
from agent_kernel.core.protocols import ToolContext, ToolOutput, ToolSpec
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent
from jupyter_ext.turns.stored_events import find_turn, replay
from tests.narrowing import instance_of, not_none

KEY = SessionKey("ns", "s")


class Draw:
    spec = ToolSpec("draw", "", {"type": "object"}, "python.sandbox")

    async def call(self, arguments: object, context: ToolContext) -> ToolOutput:
        return ToolOutput("drawn", media=(Media.of("image/png", b"png"),))


async def events_of(store: MemoryStore, turn: Turn, after: int = 0) -> list[Event]:
    return [event async for event in replay(store, turn, after, poll_s=0.01)]


async def test_a_stored_turn_is_told_as_it_was() -> None:
    store = MemoryStore()
    call = {"name": "draw", "arguments": {"what": "a cat"}, "id": "c1"}
    engine = ScriptedEngine([{"reasoning": "Hm.", "calls": [call]}, {"text": "There."}])
    done = await Agent(store, engine, KEY, [Draw()]).run("draw")
    turn = await find_turn(store, "ns", done.turn)
    bodies = [event.body for event in await events_of(store, turn)]
    assert [type(body) for body in bodies] == [
        TurnStarted,
        ReasoningDelta,
        CallStarted,
        CallFinished,
        TextDelta,
        TurnFinished,
    ]
    finished = instance_of(CallFinished, bodies[3])
    assert (finished.call, finished.text, finished.media[0]["mime"]) == ("c1", "drawn", "image/png")
    end = instance_of(TurnFinished, bodies[-1])
    assert (end.state, end.rounds, end.error) == ("committed", 1, None)


async def test_a_failed_turn_ends_with_its_error() -> None:
    store = MemoryStore()
    done = await Agent(store, ScriptedEngine([{"fault": "no luck"}]), KEY).run("x")
    (*_, last) = await events_of(store, await find_turn(store, "ns", done.turn))
    assert isinstance(last.body, TurnFinished)
    assert not_none(last.body.error)["message"] == "no luck"


async def test_a_reader_with_a_number_of_the_lost_log_gets_the_end_only() -> None:
    store = MemoryStore()
    done = await Agent(store, ScriptedEngine([{"text": "hi"}]), KEY).run("x")
    events = await events_of(store, await find_turn(store, "ns", done.turn), after=41)
    assert [(event.seq, event.body.type) for event in events] == [(42, "notice"), (43, "turn.finished")]


async def test_a_turn_that_another_server_runs_is_awaited() -> None:
    store, owner = MemoryStore(), Owner.here()
    await store.create(KEY)
    turn = await store.open_turn(Turn("t1", KEY), owner)
    events = replay(store, turn, 0, poll_s=0.01)
    begun = anext(events)
    await store.close_turn(turn, owner, "cancelled", "stopped")
    assert isinstance((await begun).body, TurnStarted)
    assert instance_of(TurnFinished, [event.body async for event in events][-1]).reason == "stopped"


async def test_a_turn_of_another_namespace_is_not_found() -> None:
    store = MemoryStore()
    done = await Agent(store, ScriptedEngine([{"text": "hi"}]), KEY).run("x")
    assert (await find_turn(store, "ns", done.turn, "s")).id == done.turn
    for namespace, session in (("other", None), ("other", "s"), ("ns", "none")):
        with pytest.raises(TurnNotFound):
            await find_turn(store, namespace, done.turn, session)

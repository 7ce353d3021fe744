"""Tests pictures of users and of tools, on the way to the model and in later turns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agent_kernel.core.events import EventBody, Notice
from agent_kernel.core.messages import Media
from agent_kernel.core.protocols import ToolContext, ToolOutput
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.turn.agent import Agent, TurnRequest
from tests.scripted import python
from tests.turns import KEY, Recorder

CAT = Media.of("image/png", b"a cat")
PLOT = Media.of("image/png", b"a plot")


class Plotter(Recorder):
    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput("drawn", media=(PLOT,))


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[SessionStore, None]:
    made: SessionStore = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "sessions.db")
    yield made
    await made.aclose()


def conversation(
    store: SessionStore, script: Sequence[Mapping[str, Any]], *, vision: bool = True
) -> tuple[Agent, ScriptedEngine]:
    engine = ScriptedEngine(script, vision=vision)
    gate = Gate(Approvals(), answers=frozenset("*"))
    return Agent(store, engine, KEY, [Plotter()], gate=gate), engine


def seen_media(engine: ScriptedEngine, round_: int) -> list[tuple[str, bytes | None]]:
    return [(message.role, medium.data) for message in engine.requests[round_].messages for medium in message.media]


async def test_a_question_of_text_in_a_session_with_pictures_shows_them_again(store: SessionStore) -> None:
    it, engine = conversation(store, [{"text": "A cat."}, {"text": "Black."}])
    await it.run(TurnRequest("What is this?", media=(CAT,)))
    await it.run("Which colour?")

    assert seen_media(engine, 0) == seen_media(engine, 1) == [("user", b"a cat")]


async def test_what_a_tool_draws_is_fed_back_in_this_turn_and_the_next(store: SessionStore) -> None:
    it, engine = conversation(store, [{"calls": [python("plot()")]}, {"text": "It rises."}, {"text": "Linear."}])
    await it.run("Plot it.")
    await it.run("What shape?")

    assert [seen_media(engine, number) for number in range(3)] == [[], [("tool", b"a plot")], [("tool", b"a plot")]]


async def test_a_model_of_text_is_told_in_words_and_the_person_by_a_notice(store: SessionStore) -> None:
    it, engine = conversation(store, [{"text": "I cannot see it."}], vision=False)
    events: list[EventBody] = []
    await it.turn(TurnRequest("What is this?", media=(CAT, PLOT)), events.append)
    notices = [event.text for event in events if isinstance(event, Notice)]

    assert (
        engine.requests[0].messages[-1].text.endswith("[2 image(s) or video(s) attached; this model cannot see them]")
    )
    assert seen_media(engine, 0) == []
    assert notices == ["scripted reads text only; the 2 image(s) were not sent to it."]


async def test_a_model_that_sees_gives_no_notice(store: SessionStore) -> None:
    it, _ = conversation(store, [{"text": "A cat."}])
    events: list[EventBody] = []
    await it.turn(TurnRequest("What is this?", media=(CAT,)), events.append)

    assert not any(isinstance(event, Notice) for event in events)

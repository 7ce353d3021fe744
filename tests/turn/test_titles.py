"""Tests titles: the rule's, the model's, and a user's, which stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.session import SessionKey
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.post_turn_tasks import MAX_TITLE, retitle, title_from_text
from tests.narrowing import not_none

KEY = SessionKey("local", "s1")


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("Plot  the\nrainfall", "Plot the rainfall"),
        ("  ", ""),
        ("word " * 30, "word word word word word word word word word word word…"),
        ("x" * 100, "x" * 59 + "…"),
    ],
)
def test_a_title_is_how_the_first_message_begins(said: str, title: str) -> None:
    assert title_from_text(said) == title


@given(st.text(max_size=200))
def test_a_title_is_one_short_line(said: str) -> None:
    title = title_from_text(said)
    assert len(title) <= MAX_TITLE
    assert title.splitlines() == ([title] if title else [])


@pytest.mark.parametrize(
    "written", ['"Rainfall in Seattle"', "\n**Title: Rainfall in Seattle**\nBecause ...", "# Rainfall in Seattle"]
)
async def test_the_model_writes_a_title_in_the_place_of_the_rules(written: str) -> None:
    store = MemoryStore()
    await store.create(KEY, "plot it")
    engine = ScriptedEngine([{"text": written}])
    await retitle(store, KEY, engine, "plot it", "Here is the rainfall.", instead_of="plot it")
    assert not_none(await store.info(KEY)).title == "Rainfall in Seattle"
    assert "plot it" in engine.requests[0].messages[0].text
    await store.aclose()


async def test_a_title_that_a_person_wrote_meanwhile_stays() -> None:
    store = MemoryStore()
    await store.create(KEY, "plot it")
    await store.rename(KEY, "my rain")
    await retitle(store, KEY, ScriptedEngine([{"text": "Rainfall"}]), "plot it", "ok", instead_of="plot it")
    assert not_none(await store.info(KEY)).title == "my rain"
    await store.aclose()

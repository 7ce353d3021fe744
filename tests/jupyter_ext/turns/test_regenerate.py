"""Tests the request of a turn that replaces another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_kernel.core.errors import TurnNotFound
from agent_kernel.core.messages import Media, user
from agent_kernel.core.session import SessionKey
from agent_kernel.core.turn_request import Note
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent, TurnRequest
from agent_kernel.turn.lost_variables import LOST
from jupyter_ext.turns.turn_starter import repeat_request

KEY = SessionKey("local", "s")
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


async def run_turn(store: MemoryStore, request: TurnRequest) -> str:
    agent = Agent(store, ScriptedEngine([{"text": "Yes.", "loop": True}]), KEY, [])
    await agent.run(request)
    return (await store.turns(KEY))[-1].id


async def test_silence_asks_the_same_again_with_pictures_and_notes_and_no_more_freely() -> None:
    store = MemoryStore()
    picture = Media.of("image/png", PNG)
    request = TurnRequest("what is this", media=(picture,), notes=(Note("Cell 3", "df"),), permission="ask")
    turn = await run_turn(store, request)
    again = await repeat_request(store, KEY, TurnRequest("", where="sandbox"), turn)
    assert (again.prompt, again.where, again.permission) == ("what is this", "sandbox", "ask")
    assert [medium.data for medium in again.media] == [PNG]
    assert [note.text for note in again.notes] == ["Cell 3: df"]
    stricter = await repeat_request(store, KEY, TurnRequest("", permission="deny"), turn)
    assert stricter.permission == "deny"


async def test_files_go_along_again_and_a_note_is_said_once_however_often_it_is_asked() -> None:
    store = MemoryStore()
    turn = await run_turn(
        store, TurnRequest("one", notes=(Note("Cell 3", "df"), Note("", "copies")), inputs=("file_1",))
    )
    for _ in range(3):
        again = await repeat_request(store, KEY, TurnRequest(""), turn)
        assert again.inputs == ("file_1",)
        turn = await run_turn(store, replace(again, notes=(*again.notes, Note("", "copies"))))
    found = await store.turn(KEY.namespace, turn)
    assert found is not None
    hidden = [item.message.text for item in await store.of_turn(found) if item.message.hidden]
    assert hidden == ["Cell 3: df\ncopies"]


async def test_words_of_ones_own_take_nothing_along() -> None:
    store = MemoryStore()
    turn = await run_turn(store, TurnRequest("one", notes=(Note("Cell 3", "df"),)))
    edited = TurnRequest("two")
    assert await repeat_request(store, KEY, edited, turn) is edited
    carried = TurnRequest("", messages=(user("three"),))
    assert await repeat_request(store, KEY, carried, turn) is carried


async def test_that_variables_were_lost_then_is_not_said_again() -> None:
    store = MemoryStore()
    turn = await run_turn(store, TurnRequest("one", notes=(Note("", LOST),)))
    assert (await repeat_request(store, KEY, TurnRequest(""), turn)).notes == ()


async def test_a_turn_of_another_session_or_none_is_not_found() -> None:
    store = MemoryStore()
    turn = await run_turn(store, TurnRequest("one"))
    for key, id in ((KEY, "turn_there_is_none"), (SessionKey("local", "other"), turn), (SessionKey("x", "s"), turn)):
        with pytest.raises(TurnNotFound):
            await repeat_request(store, key, TurnRequest(""), id)

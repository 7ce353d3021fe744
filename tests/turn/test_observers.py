"""Tests that observers are called in order, and that their errors do not reach the turn."""

from __future__ import annotations

import asyncio
import logging

import pytest

from agent_kernel.core.session import Session, SessionKey
from agent_kernel.turn import observers
from agent_kernel.turn.observers import Observers, SessionObserver

SESSION = Session(SessionKey("local", "s1"), "a title")


class Diary(SessionObserver):
    def __init__(self) -> None:
        self.entries: list[tuple[object, ...]] = []

    def on_session_load(self, run_id: str, session_id: str, message_count: int) -> None:
        self.entries.append(("load", run_id, session_id, message_count))

    async def on_session_save(self, run_id: str, session_id: str, message_count: int) -> None:
        await asyncio.sleep(0)
        self.entries.append(("save", run_id, session_id, message_count))

    def on_session_expire(self, session: Session) -> None:
        self.entries.append(("expire", session))

    async def on_conflict(self, session_id: str, error: Exception) -> None:
        self.entries.append(("conflict", session_id, error))


class Rude(SessionObserver):
    def on_session_load(self, run_id: str, session_id: str, message_count: int) -> None:
        raise ValueError("a secret of the conversation")

    async def on_session_save(self, run_id: str, session_id: str, message_count: int) -> None:
        raise KeyError("a secret of the conversation")

    async def on_session_expire(self, session: Session) -> None:
        await asyncio.Event().wait()


async def test_plain_and_asynchronous_observers_hear_everything() -> None:
    diary, error = Diary(), ValueError("x")
    told = Observers([diary])
    await told.notify_load("t1", "s1", 4)
    await told.notify_save("t1", "s1", 6)
    await told.notify_expire(SESSION)
    await told.notify_conflict("s1", error)
    assert diary.entries == [
        ("load", "t1", "s1", 4),
        ("save", "t1", "s1", 6),
        ("expire", SESSION),
        ("conflict", "s1", error),
    ]


async def test_one_that_raises_or_hangs_is_logged_without_content_and_the_next_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(observers, "OBSERVER_S", 0.01)
    diary = Diary()
    told = Observers([Rude(), diary])
    with caplog.at_level(logging.ERROR):
        await told.notify_load("t1", "s1", 4)
        await told.notify_save("t1", "s1", 6)
        await told.notify_expire(SESSION)
    assert [entry[0] for entry in diary.entries] == ["load", "save", "expire"]
    assert len(caplog.records) == 3
    assert "secret" not in caplog.text
    assert "on_session_load of Rude failed: ValueError" in caplog.text


async def test_what_an_observer_does_not_override_is_nothing() -> None:
    told = Observers([SessionObserver()])
    await told.notify_load("t1", "s1", 0)
    await told.notify_expire(SESSION)


async def test_a_turn_that_is_stopped_while_an_observer_is_told_stops() -> None:
    task = asyncio.create_task(Observers([Rude()]).notify_expire(SESSION))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

"""Runs the contract of grants with our own session stores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.contract_tests.fixtures import KEY
from agent_kernel.sessions.contract_tests.grants import *  # noqa: F403
from agent_kernel.sessions.contract_tests.grants import LIVE, QUESTION
from agent_kernel.sessions.retention.limited_store import limit_store
from agent_kernel.sessions.retention.limits import RetentionLimits
from agent_kernel.sessions.store.json_files import FilesStore
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.private_store import PREFIX, PrivateStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.sessions.talk import Clock


async def test_what_was_decided_is_there_after_a_restart(tmp_path: Path) -> None:
    for kind, place in ((SqliteStore, tmp_path / "s.db"), (FilesStore, tmp_path / "files")):
        before: SqliteStore = kind(place)
        await before.create(KEY)
        await before.grant(KEY, LIVE)
        await before.ask(QUESTION)
        await before.aclose()
        after: SqliteStore = kind(place)
        assert await after.grants(KEY) == [LIVE]
        assert await after.question("local", QUESTION.id) == QUESTION
        await after.aclose()


async def test_a_session_that_expired_grants_nothing(clock: Clock) -> None:
    store = limit_store(MemoryStore(clock=clock), RetentionLimits(ttl=60), clock=clock)
    await store.create(KEY)
    await store.grant(KEY, LIVE)  # type: ignore[attr-defined]  # of the store behind it
    clock.now += 61
    assert await store.grants(KEY) == []  # type: ignore[attr-defined]
    await store.aclose()


async def test_a_private_session_leaves_no_trace_of_what_was_decided_in_it(tmp_path: Path) -> None:
    kept = SqliteStore(tmp_path / "s.db")
    store = PrivateStore(kept)
    private = SessionKey("local", f"{PREFIX}1")
    await store.create(private)
    await store.grant(private, LIVE)
    question = replace(QUESTION, key=private)
    await store.ask(question)
    assert await store.grants(private) == [LIVE]
    assert await store.question("local", QUESTION.id) == question
    assert await kept.grants(private) == []
    assert await kept.question("local", QUESTION.id) is None
    await store.aclose()

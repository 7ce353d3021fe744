"""Tests which sessions expire, and who is notified. The numbers of sessions and callbacks are those of nexo-rs's own
tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

import pytest

from agent_kernel.core.errors import Conflict, SessionBusy, SessionNotFound, StoreFull
from agent_kernel.core.messages import user
from agent_kernel.core.seams.session_store import ExpiringStore, SessionStore
from agent_kernel.core.session import Owner, Session, SessionKey, Turn
from agent_kernel.sessions.retention.limited_store import LimitedStore, limit_store
from agent_kernel.sessions.retention.limits import RetentionLimits
from agent_kernel.sessions.retention.retention import OnExpire, Retention
from tests.narrowing import instance_of, not_none
from tests.sessions.talk import KEY, Clock, Talk

TTL = 0.1
Made: TypeAlias = Callable[..., tuple[SessionStore, Retention]]


@pytest.fixture
def made(store: SessionStore, clock: Clock) -> Made:
    def make(limits: RetentionLimits, *on_expire: OnExpire) -> tuple[SessionStore, Retention]:
        seen = instance_of(LimitedStore, limit_store(store, limits, on_expire, clock=clock))
        return seen, seen.retention

    return make


def key(id: str) -> SessionKey:
    return SessionKey("local", id)


async def fill_store(store: SessionStore, clock: Clock, ids: str, step: float = 0.005) -> None:
    for id in ids:
        clock.now += step
        await store.create(key(id))


async def soon_gone(store: SessionStore) -> bool:
    for _ in range(1_000):
        if await store.info(KEY) is None:
            return True
        await asyncio.sleep(0.01)
    return False


async def ids(store: SessionStore) -> list[str]:
    return sorted(session.key.id for session in await store.list("local", None))


class Callback:
    """Records the sessions that it is called for, and whether their history could be read at that time."""

    def __init__(self, store: SessionStore) -> None:
        self.told: list[str] = []
        self.texts: list[list[str]] = []
        self._store = store

    async def __call__(self, session: Session) -> None:
        self.told.append(session.key.id)
        self.texts.append([item.message.text for item in await self._store.latest(session.key)])


async def test_without_limits_the_store_is_the_store_itself(store: SessionStore) -> None:
    assert limit_store(store, RetentionLimits()) is store


async def test_a_session_is_gone_for_every_reader_at_the_ttl_before_any_sweep(made: Made, clock: Clock) -> None:
    store, _ = made(RetentionLimits(ttl=TTL))
    await store.create(KEY, "title")
    await store.bind("local", "/root", "a.ipynb", KEY.id)
    clock.now += TTL * 0.99
    assert (await store.info(KEY), await ids(store)) != (None, [])
    clock.now += TTL * 0.01 + 1e-6
    assert await store.info(KEY) is None
    assert await ids(store) == []
    assert await store.bound("local", "/root", "a.ipynb") is None
    assert await store.branches(KEY) == []
    with pytest.raises(SessionNotFound):
        await store.rename(KEY, "other")
    with pytest.raises(SessionNotFound):
        await store.open_turn(Turn("t", KEY), Owner.here())


async def test_a_session_made_again_after_the_ttl_is_a_new_one(made: Made, clock: Clock, owner: Owner) -> None:
    store, _ = made(RetentionLimits(ttl=TTL))
    talk = await Talk.begin(store, owner)
    await talk.say(user("old"))
    await talk.close()
    clock.now += 1
    await store.create(KEY)
    assert await talk.texts() == []


async def test_a_sweep_removes_what_is_too_old_and_tells_why(made: Made, store: SessionStore, clock: Clock) -> None:
    seen, retention = made(RetentionLimits(ttl=TTL))
    await seen.create(KEY)
    assert await retention.sweep() == []
    clock.now += 0.3
    assert [(going.session.key, going.why) for going in await retention.due()] == [(KEY, "ttl")]
    assert await store.info(KEY) is not None, "to look removes nothing"
    assert [going.session.key for going in await retention.sweep()] == [KEY]
    assert await store.info(KEY) is None


async def test_reading_keeps_a_session_and_looking_it_up_does_not(made: Made, clock: Clock) -> None:
    store, retention = made(RetentionLimits(ttl=TTL))
    await fill_store(store, clock, "ab", step=0)
    for _ in range(4):
        clock.now += TTL * 0.7
        await store.touch(key("a"))
        await store.info(key("b"))
        await store.list("local")
    assert await ids(store) == ["a"]
    assert [going.session.key.id for going in await retention.sweep()] == ["b"]


async def test_reading_again_and_again_writes_once(made: Made, store: SessionStore, clock: Clock) -> None:
    seen, retention = made(RetentionLimits(ttl=100))
    began = (await seen.create(KEY)).accessed
    for _ in range(10):
        clock.now += 1
        await seen.touch(KEY)
    stored = not_none(await store.info(KEY))
    assert stored.accessed == began
    await retention.sweep()
    stored = not_none(await store.info(KEY))
    assert stored.accessed == clock.now


async def test_another_server_learns_of_a_read_before_it_would_let_go(
    made: Made, store: SessionStore, clock: Clock
) -> None:
    here, _ = made(RetentionLimits(ttl=100))
    _, there = made(RetentionLimits(ttl=100))
    await here.create(KEY)
    clock.now += 90
    await here.touch(KEY)
    clock.now += 20
    assert await there.sweep() == []


async def test_a_session_with_an_open_turn_never_goes(made: Made, clock: Clock, owner: Owner) -> None:
    store, retention = made(RetentionLimits(ttl=TTL, max_sessions=2))
    talk = await Talk.begin(store, owner)
    clock.now += 10
    await fill_store(store, clock, "ab")
    assert await ids(store) == ["b", "s"], "the longest unused without an open turn made room"
    assert await retention.sweep() == []
    assert await talk.say(user("still here"))
    await talk.close()
    clock.now += 10
    await retention.sweep()
    assert await store.info(KEY) is None


async def test_a_session_that_is_used_meanwhile_stays(made: Made, clock: Clock) -> None:
    store, retention = made(RetentionLimits(ttl=TTL))
    await store.create(KEY)
    clock.now += 1
    (due,) = await retention.due()
    await retention._store.touch(KEY)
    assert not await retention.remove(due.session)
    assert await store.info(KEY) is not None


async def test_at_the_cap_a_new_session_takes_the_place_of_the_longest_unused(made: Made, clock: Clock) -> None:
    store, _ = made(RetentionLimits(max_sessions=3))
    await fill_store(store, clock, "abcd")
    assert await ids(store) == ["b", "c", "d"]
    await store.touch(key("b"))
    clock.now += 0.005
    await store.create(key("e"))
    assert await ids(store) == ["b", "d", "e"]
    assert await store.create(key("b")) is not None
    assert await ids(store) == ["b", "d", "e"], "one that is there makes no room"


async def test_each_namespace_has_its_own_cap(made: Made, clock: Clock) -> None:
    store, _ = made(RetentionLimits(max_sessions=1))
    await store.create(SessionKey("ann", "s"))
    await store.create(SessionKey("bob", "s"))
    assert [len(await store.list(name)) for name in ("ann", "bob")] == [1, 1]


async def test_sessions_made_at_once_do_not_exceed_the_cap(made: Made) -> None:
    store, _ = made(RetentionLimits(max_sessions=3))
    await asyncio.gather(*(store.create(key(str(number))) for number in range(20)))
    assert len(await ids(store)) == 3


async def test_a_cap_of_zero_is_no_cap(made: Made, store: SessionStore, clock: Clock) -> None:
    seen, retention = made(RetentionLimits(max_sessions=0, max_history_turns=1))
    await fill_store(seen, clock, "0123456789")
    assert await retention.sweep() == []
    assert len(await ids(seen)) == 10


async def test_every_callback_is_told_once_before_with_the_history(
    made: Made, store: SessionStore, clock: Clock, owner: Owner
) -> None:
    first, second = Callback(store), Callback(store)
    seen, retention = made(RetentionLimits(ttl=TTL), first, second)
    talk = await Talk.begin(seen, owner)
    await talk.say(user("the last words"))
    await talk.close()
    clock.now += 0.4
    await retention.sweep()
    await retention.sweep()
    assert first.told == second.told == ["s"]
    assert first.texts == [["the last words"]]


async def test_a_deleted_session_is_told_of_once_and_an_unknown_one_never(made: Made, store: SessionStore) -> None:
    callback = Callback(store)
    seen, _ = made(RetentionLimits(), callback)
    await seen.create(KEY)
    assert list(await asyncio.gather(seen.delete(KEY), seen.delete(KEY))) == [True, False]
    assert not await seen.delete(key("unknown"))
    assert callback.told == ["s"]


async def test_nobody_is_told_of_a_session_that_may_not_be_deleted(
    made: Made, store: SessionStore, owner: Owner
) -> None:
    callback = Callback(store)
    seen, _ = made(RetentionLimits(), callback)
    talk = await Talk.begin(seen, owner)
    with pytest.raises(SessionBusy):
        await seen.delete(KEY)
    await talk.close()
    with pytest.raises(Conflict):
        await seen.delete(KEY, revision=1)
    assert callback.told == []


async def test_a_callback_that_fails_is_logged_and_the_session_goes(
    made: Made, store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(session: Session) -> None:
        raise RuntimeError("the text of a message")

    callback = Callback(store)
    seen, _ = made(RetentionLimits(), fails, callback)
    await seen.create(KEY)
    assert await seen.delete(KEY)
    assert callback.told == ["s"]
    assert "RuntimeError" in caplog.text
    assert "the text of a message" not in caplog.text


async def test_at_the_end_the_server_tells_of_the_sessions_it_worked_with(
    made: Made, store: SessionStore, clock: Clock
) -> None:
    callback = Callback(store)
    await store.create(key("earlier"))
    seen, retention = made(RetentionLimits(), callback)
    await fill_store(seen, clock, "abc")
    await seen.delete(key("b"))
    await retention.aclose()
    await retention.aclose()
    assert callback.told == ["b", "a", "c"]
    assert await ids(store) == ["a", "c", "earlier"], "they stay stored"


async def test_the_sweeper_comes_by_itself(made: Made, store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_kernel.sessions.retention.retention.MIN_SWEEP_S", 0.01)
    retention = Retention(cast(ExpiringStore, store), RetentionLimits(ttl=0.02), clock=lambda: 2_000_000_000.0)
    await store.create(KEY)
    retention.start()
    assert await soon_gone(store)
    await retention.aclose()


async def test_a_full_disk_does_not_end_the_sweeper(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agent_kernel.sessions.retention.retention.MIN_SWEEP_S", 0.01)
    real: Callable[..., Awaitable[bool]] = store.delete
    tried = asyncio.Event()

    async def full_once(*given: object) -> bool:
        if not tried.is_set():
            tried.set()
            raise StoreFull("No space left.")
        return await real(*given)

    monkeypatch.setattr(store, "delete", full_once)
    retention = Retention(cast(ExpiringStore, store), RetentionLimits(ttl=0.02), clock=lambda: 2_000_000_000.0)
    await store.create(KEY)
    retention.start()
    assert await soon_gone(store)
    await retention.aclose()
    assert "No space left" in caplog.text

"""Tests two servers on one log: each sees what the other acknowledged, and both agree with a simple model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from agent_kernel.core.errors import SequenceConflict, SessionNotFound, StoreError
from agent_kernel.core.messages import user
from agent_kernel.core.session import LEASE_S, Owner, SessionKey, SessionQuery
from agent_kernel.sessions.log.log_store import Append, LogConflict, LogStore, Stream, Tail
from agent_kernel.sessions.store import replica, row_changes, shared_store
from agent_kernel.sessions.store.shared_store import SharedStore
from tests.sessions import test_model_based
from tests.sessions.log.memory_log import MemoryLog
from tests.sessions.talk import ELSEWHERE, KEY, PNG, Clock, Talk


@pytest.fixture
async def other(log: LogStore, again: Any, clock: Clock) -> AsyncIterator[SharedStore]:
    made = SharedStore(again(), clock=clock)
    yield made
    await made.aclose()


async def test_what_one_server_acknowledged_is_there_for_the_other(
    store: SharedStore, other: SharedStore, owner: Owner
) -> None:
    talk = await Talk.begin(store, owner)
    await talk.say(user("look", [PNG]))
    assert [item.message.text for item in await other.latest(KEY)] == ["look"]
    assert await other.blob(KEY, PNG.hash) == PNG.data
    assert [hit.session.key for hit in await other.search("local", SessionQuery("look"))] == [KEY]
    await talk.close()
    await other.bind("local", "/root", "a.ipynb", KEY.id)
    assert await store.bound("local", "/root", "a.ipynb") == KEY.id
    await other.delete(KEY)
    assert await store.info(KEY) is None
    assert await store.bound("local", "/root", "a.ipynb") is None
    assert await store.search("local", SessionQuery("look")) == []


async def test_a_server_that_starts_later_has_everything(
    store: SharedStore, log: LogStore, again: Any, owner: Owner, clock: Clock
) -> None:
    talk = await Talk.begin(store, owner)
    for number in range(5):
        await talk.say(user(f"said {number}", [PNG]))
    await talk.close()
    await store.branch(KEY, name="side")
    late = SharedStore(again(), clock=clock)
    assert await late.whole(KEY) == await store.whole(KEY)
    assert await late.stats() == await store.stats()
    assert await late.verify() == []
    await late.aclose()


async def test_a_session_with_many_changes_is_written_anew(
    monkeypatch: pytest.MonkeyPatch, log: LogStore, again: Any, owner: Owner
) -> None:
    monkeypatch.setattr(replica, "MIN_CHANGES", 20)
    store, other, late = (SharedStore(again()) for _ in range(3))
    talk = await Talk.begin(store, owner)
    for number in range(10):
        await talk.say(user(f"said {number}", [PNG]))
        assert len(await (store, other)[number % 2].latest(KEY)) == number + 1
    for _ in range(200):
        assert await store.heartbeat(talk.turn, owner)
    assert len(log.read({}).entries) < 120
    for each in (store, other, late):
        assert await each.verify() == []
        assert [item.message.text for item in await each.latest(KEY)] == [f"said {n}" for n in range(10)]
    assert await late.whole(KEY) == await store.whole(KEY) == await other.whole(KEY)
    for each in (store, other, late):
        await each.aclose()


async def test_the_log_does_not_keep_what_was_deleted(store: SharedStore, log: LogStore, owner: Owner) -> None:
    for end in ("clear", "delete"):
        talk = await Talk.begin(store, owner, turn=f"t-{end}")
        await talk.say(user("forget this"))
        await talk.close()
        assert any(b"forget this" in entry.body for entry in log.read({}).entries)
        await getattr(store, end)(KEY)
        assert not any(b"forget this" in entry.body for entry in log.read({}).entries)


async def test_writers_of_one_session_lose_nothing(store: SharedStore, other: SharedStore) -> None:
    await store.create(KEY)
    await asyncio.gather(
        *[
            each.add_messages(KEY, [user(f"{name}{n}")])
            for n in range(15)
            for name, each in (("a", store), ("b", other))
        ]
    )
    texts = [item.message.text for item in await other.latest(KEY)]
    assert sorted(texts) == sorted(f"{name}{n}" for n in range(15) for name in "ab")
    assert [text for text in texts if text[0] == "a"] == [f"a{n}" for n in range(15)]
    assert texts == [item.message.text for item in await store.latest(KEY)]


async def test_a_stale_append_is_a_conflict_also_on_another_server(
    store: SharedStore, other: SharedStore, owner: Owner
) -> None:
    talk = await Talk.begin(store, owner)
    await store.append(talk.turn, owner, [user("first")], 0)
    with pytest.raises(SequenceConflict):
        await other.append(talk.turn, owner, [user("second")], 0)


async def test_a_turn_of_a_server_that_fell_silent_is_closed_by_another(
    store: SharedStore, other: SharedStore, clock: Clock
) -> None:
    talk = await Talk.begin(store, ELSEWHERE)
    clock.now += LEASE_S - 1
    assert await other.recover() == []
    clock.now += 1
    assert [turn.id for turn in await other.recover()] == [talk.turn.id]
    assert await store.recover() == []
    assert not await talk.close()


async def test_bytes_that_nothing_names_are_dropped_and_those_of_a_fork_stay(
    store: SharedStore, other: SharedStore, log: LogStore, owner: Owner
) -> None:
    talk = await Talk.begin(store, owner)
    await talk.say(user("look", [PNG]))
    await talk.close()
    copy = SessionKey("local", "copy")
    await other.fork(KEY, copy)
    await store.delete(KEY)
    await store.vacuum()
    assert log.drop_blobs({("local", PNG.hash)}, -1) == 0
    assert await store.blob(copy, PNG.hash) == await other.blob(copy, PNG.hash) == PNG.data


class Failing(MemoryLog):
    """A database that is unreachable, or whose replies are lost, when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.away = self.loses = False

    def read(self, after: Mapping[str, int], among: Collection[str] | None = None) -> Tail:
        if self.away:
            raise StoreError("The database is away.", hint="Start it.")
        return super().read(after, among)

    def commit(
        self, id: str, appends: Sequence[Append], after: Mapping[str, int] | None = None
    ) -> Mapping[Stream, int]:
        positions = super().commit(id, appends, after)
        if self.loses:
            raise StoreError("The connection broke.")
        return positions


async def test_while_the_database_is_away_calls_fail_and_afterwards_they_work() -> None:
    log = Failing()
    store = SharedStore(log)
    await store.create(KEY)
    log.away = True
    for call in (store.info, store.create):
        with pytest.raises(StoreError, match="away"):
            await call(KEY)
    log.away = False
    assert await store.info(KEY) is not None
    await store.aclose()


async def test_a_write_whose_reply_was_lost_is_there_once() -> None:
    log = Failing()
    store = SharedStore(log)
    await store.create(KEY)
    log.loses = True
    with pytest.raises(StoreError):
        await store.add_messages(KEY, [user("once")])
    log.loses = False
    assert [item.message.text for item in await store.latest(KEY)] == ["once"]
    await store.add_messages(KEY, [user("twice")])
    assert [item.message.text for item in await store.latest(KEY)] == ["once", "twice"]
    assert await store.verify() == []
    await store.aclose()


async def test_writes_that_wait_at_the_same_moment_and_whose_reply_was_lost_are_there_once() -> None:
    log = Failing()
    store = SharedStore(log)
    await store.create(KEY)
    log.loses = True
    writes = [store.add_messages(KEY, [user(f"said {n}")]) for n in range(5)]
    ended = await asyncio.gather(*writes, return_exceptions=True)
    assert all(isinstance(end, StoreError) for end in ended)
    log.loses = False
    assert [item.message.text for item in await store.latest(KEY)] == [f"said {n}" for n in range(5)]
    await store.aclose()


class Counting(MemoryLog):
    """Notes the requests to the database, and which namespaces each read asks for."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.requests: list[str] = []
        self.asked: list[set[str] | None] = []

    def read(self, after: Mapping[str, int], among: Collection[str] | None = None) -> Tail:
        self.requests.append("read")
        self.asked.append(None if among is None else set(among))
        return super().read(after, among)

    def commit(
        self, id: str, appends: Sequence[Append], after: Mapping[str, int] | None = None
    ) -> Mapping[Stream, int]:
        self.requests.append("commit")
        return super().commit(id, appends, after)


@pytest.fixture
async def counted(clock: Clock) -> AsyncIterator[tuple[Counting, SharedStore, SharedStore]]:
    """A log, and two servers on it that have read it."""
    log = Counting(clock)
    store, other = SharedStore(log, clock=clock), SharedStore(log, clock=clock)
    await store.create(KEY)
    assert await other.info(KEY) is not None
    log.requests.clear()
    yield log, store, other
    await store.aclose()
    await other.aclose()


async def test_a_write_that_follows_another_call_takes_one_request_and_so_does_a_read(
    counted: tuple[Counting, SharedStore, SharedStore],
) -> None:
    log, store, _ = counted
    for n in range(3):
        await store.add_messages(KEY, [user(f"said {n}")])
    assert log.requests == ["commit"] * 3
    assert len(await store.latest(KEY)) == 3
    assert log.requests == ["commit"] * 3 + ["read"]


async def test_a_read_asks_for_the_namespaces_of_its_calls_and_not_for_those_of_all_users(
    counted: tuple[Counting, SharedStore, SharedStore],
) -> None:
    log, store, other = counted
    keys = [SessionKey(f"user{n}", "s") for n in range(20)]
    for key in keys:
        await other.add_messages(key, [user("said")])
    assert len(await other.idle(2e9)) == 21
    log.asked.clear()
    assert len(await store.latest(keys[3])) == 1
    await store.fork(keys[4], SessionKey("user5", "copy"))
    assert log.asked == [{"user3"}, {"user4", "user5"}]
    log.requests.clear()
    await store.add_messages(keys[3], [user("more")])
    assert log.requests == ["commit"], "this server has read the namespace before"
    assert len(await other.idle(2e9)) == 22, "a call that concerns all users reads all"
    assert log.asked[-1] is None


async def test_calls_that_wait_at_the_same_moment_share_one_request(
    counted: tuple[Counting, SharedStore, SharedStore],
) -> None:
    log, store, other = counted
    gate = threading.Event()
    held = asyncio.ensure_future(store._database.run_outside_transaction(lambda _: gate.wait(20)))
    keys = [SessionKey("local", f"s{n}") for n in range(6)]
    writes = [asyncio.ensure_future(store.add_messages(key, [user("said")])) for key in keys]
    reads = [asyncio.ensure_future(store.latest(key)) for key in keys]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(held, *writes)
    assert [len(items) for items in await asyncio.gather(*reads)] == [1] * 6
    assert log.requests == ["read", "commit", "read"], "the first read is of the call that held the others"
    assert [len(await other.latest(key)) for key in keys] == [1] * 6


async def test_a_write_without_a_read_before_it_sees_what_another_server_wrote_in_between(
    counted: tuple[Counting, SharedStore, SharedStore],
) -> None:
    log, store, other = counted
    await store.add_messages(KEY, [user("first")])
    await other.add_messages(KEY, [user("second")])
    log.requests.clear()
    await store.fork(KEY, SessionKey("local", "copy"))
    assert [item.message.text for item in await other.latest(SessionKey("local", "copy"))] == ["first", "second"]
    assert log.requests == ["commit", "read", "commit", "read"], "a conflict, then once more with what is there"


async def test_a_refusal_and_a_write_that_changes_nothing_are_compared_with_what_others_wrote(
    counted: tuple[Counting, SharedStore, SharedStore], owner: Owner
) -> None:
    log, store, other = counted
    late = SessionKey("other", "late")
    await other.create(late)
    log.requests.clear()
    await store.rename(late, "found")
    assert [session.title for session in await other.list("other")] == ["found"]
    with pytest.raises(SessionNotFound):
        await store.rename(SessionKey("local", "never"), "x")
    talk = await Talk.begin(store, owner)
    assert await other.close_turn(talk.turn, owner, "committed")
    assert not await store.heartbeat(talk.turn, owner)


async def test_of_writes_that_wait_together_one_that_is_refused_leaves_the_others(
    counted: tuple[Counting, SharedStore, SharedStore],
) -> None:
    _, store, other = counted
    late = SessionKey("other", "late")
    await other.create(late)
    renames = [store.rename(key, "new") for key in (KEY, SessionKey("local", "never"), late)]
    ended = await asyncio.gather(*renames, return_exceptions=True)
    assert [type(end).__name__ for end in ended] == ["NoneType", "SessionNotFound", "NoneType"]
    assert [session.title for session in await other.list("other")] == ["new"]


async def test_a_refused_write_leaves_nothing_in_the_log(store: SharedStore, log: LogStore) -> None:
    with pytest.raises(SessionNotFound):
        await store.rename(KEY, "nothing")
    assert log.read({}).entries == []
    assert await store.fold() == 0
    assert log.read({}).entries == []


async def test_every_table_is_shared_or_known_to_be_local(store: SharedStore) -> None:
    def names(db: Any) -> set[str]:
        return {name for (name,) in db.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")}

    tables = {name for name in await store._database.read(names) if not name.startswith(("sqlite_", "search_index"))}
    assert tables == {*row_changes.KEYS, *row_changes.UNSHARED}


class _InTurn:
    """Passes every call to the next of the stores."""

    def __init__(self, stores: Sequence[SharedStore]) -> None:
        self._stores = stores
        self._calls = 0

    def __getattr__(self, name: str) -> Any:
        self._calls += 1
        return getattr(self._stores[self._calls % len(self._stores)], name)

    async def aclose(self) -> None:
        for store in self._stores:
            await store.aclose()


class _TwoServers(test_model_based.Stores):
    def open_store(self) -> Any:
        log = MemoryLog(self.clock)
        return _InTurn([SharedStore(log, clock=self.clock) for _ in range(2)])


TestTwoServers = _TwoServers.TestCase
TestTwoServers.settings = settings(
    max_examples=8,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class BusyLog(MemoryLog):
    """A log on which another server is always faster: it refuses this many commits before it accepts one."""

    def __init__(self, conflicts: int) -> None:
        super().__init__()
        self.conflicts = conflicts

    def commit(
        self, id: str, appends: Sequence[Append], after: Mapping[str, int] | None = None
    ) -> Mapping[Stream, int]:
        self.conflicts -= 1
        if self.conflicts >= 0:
            raise LogConflict
        return super().commit(id, appends, after)


async def test_a_write_that_loses_a_hundred_times_to_other_servers_is_made_all_the_same() -> None:
    store = SharedStore(BusyLog(100))
    await store.create(KEY)
    assert (await store.info(KEY)) is not None
    await store.aclose()


async def test_a_write_that_loses_for_longer_than_the_time_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_store, "BUSY_TIMEOUT_S", 0.05)
    store = SharedStore(BusyLog(1_000_000))
    with pytest.raises(StoreError, match="changed the same session"):
        await store.create(KEY)
    await store.aclose()

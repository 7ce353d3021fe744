"""Compares the session store with plain sqlite3 in the same run. Only ratios are asserted, because the speed of the
machine varies.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

from agent_kernel.core.messages import Message, assistant, user
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.sessions.serialization import encode
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.benchmarks.conftest import Record

QUESTION, ANSWER = user("q" * 500), assistant("a" * 500)
KEY = SessionKey("local", "bench")


async def milliseconds(times: int, work: Callable[[int], Coroutine[Any, Any, Any]]) -> float:
    """Return the median time of one call in milliseconds."""
    taken = []
    for n in range(times):
        start = time.perf_counter()
        await work(n)
        taken.append(1000 * (time.perf_counter() - start))
    return statistics.median(taken)


class Floor:
    """The least code that stores a message: one transaction, one row, no thread."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = NORMAL")
        self.connection.execute("CREATE TABLE items (session TEXT, seq INTEGER, body TEXT, UNIQUE (session, seq))")
        self.seq = 0

    async def append(self, message: Message) -> None:
        self.seq += 1
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.execute("INSERT INTO items VALUES ('bench', ?, ?)", (self.seq, encode(message)))
        self.connection.execute("COMMIT")


class Session:
    def __init__(self, store: SqliteStore, key: SessionKey = KEY) -> None:
        self.store, self.key, self.owner, self.head = store, key, Owner.here(), 0

    async def open(self, id: str) -> None:
        await self.store.create(self.key)
        self.turn = await self.store.open_turn(Turn(id, self.key), self.owner)

    async def append(self, *messages: Message) -> None:
        self.head = (await self.store.append(self.turn, self.owner, messages, self.head))[-1].seq

    async def close(self) -> None:
        await self.store.close_turn(self.turn, self.owner, "committed")

    async def a_turn(self, id: str) -> None:
        await self.open(id)
        await self.append(QUESTION)
        await self.append(ANSWER)
        await self.close()


async def test_an_append_costs_a_small_multiple_of_bare_sqlite(tmp_path: Path, record: Record) -> None:
    store, floor = SqliteStore(tmp_path / "s.db"), Floor(tmp_path / "floor.db")
    session = Session(store)
    await session.open("t")
    trip = await milliseconds(500, lambda n: store._database.read(lambda db: None))
    ours = await milliseconds(500, lambda n: session.append(QUESTION))
    least = await milliseconds(500, lambda n: floor.append(QUESTION))
    floor.connection.close()
    await store.aclose()
    print(f"\nappend: {ours:.3f} ms, floor {least:.3f} ms, ratio {ours / least:.1f}; trip to the thread {trip:.3f} ms")
    record("append of one message", ours, least, "ms")
    assert ours / least < 30


async def test_a_turn_and_a_thousand_sessions(tmp_path: Path, record: Record) -> None:
    store = SqliteStore(tmp_path / "s.db")
    session = Session(store)
    each = await milliseconds(300, lambda n: session.a_turn(f"t{n}"))
    queue = iter(range(1000))

    async def writer() -> None:
        for n in queue:
            other = Session(store, SessionKey("local", f"s{n}"))
            await other.open("t")
            for _ in range(10):
                await other.append(QUESTION, ANSWER)
            await other.close()

    start = time.perf_counter()
    await asyncio.gather(*[writer() for _ in range(8)])
    took = time.perf_counter() - start
    heads = [found.head for found in await store.list("local", None) if found.key != KEY]
    await store.aclose()
    print(
        f"\none turn (create, open, 2 appends, close): {each:.2f} ms, {1000 / each:.0f} turns/s;"
        f" 1,000 sessions of 20 messages, 8 tasks: {1000 / took:.0f} sessions/s, {13_000 / took:.0f} transactions/s"
    )
    record("one turn: create, open, two appends, close", each, None, "ms")
    record("sessions of 20 messages, written by 8 tasks", 1000 / took, None, "per second")
    assert heads == [20] * 1000


async def test_an_append_and_a_tail_cost_the_same_in_a_long_session(tmp_path: Path, record: Record) -> None:
    store = SqliteStore(tmp_path / "s.db")
    session = Session(store)
    await session.open("t")
    await session.append(*[QUESTION, ANSWER] * 5)
    short = await milliseconds(300, lambda n: session.append(QUESTION))
    short_tail = await milliseconds(300, lambda n: store.latest(KEY, 20))
    for _ in range(100):
        await session.append(*[QUESTION, ANSWER] * 50)
    long = await milliseconds(300, lambda n: session.append(QUESTION))
    long_tail = await milliseconds(300, lambda n: store.latest(KEY, 20))
    await store.aclose()
    print(
        f"\nappend at {session.head} items against 10: {long:.3f} / {short:.3f} ms = {long / short:.2f};"
        f" last 20: {long_tail:.3f} / {short_tail:.3f} ms = {long_tail / short_tail:.2f}"
    )
    record("append to a session of 10,000 items", long, short, "ms")
    record("last 20 messages of 10,000 items", long_tail, short_tail, "ms")
    assert long / short < 3
    assert long_tail / short_tail < 3


async def test_the_event_loop_goes_on_while_the_store_works(tmp_path: Path, record: Record) -> None:
    store = SqliteStore(tmp_path / "s.db")
    session = Session(store)
    await session.open("t")
    for _ in range(100):
        await session.append(*[QUESTION, ANSWER] * 50)
    reading = asyncio.ensure_future(store.latest(KEY))
    worst, last = 0.0, time.perf_counter()
    while not reading.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        worst, last = max(worst, now - last), now
    await store.aclose()
    print(f"\nreading 10,000 items: longest stall of the loop {1000 * worst:.1f} ms")
    record("longest stall of the event loop while 10,000 items are read", 1000 * worst, None, "ms")
    assert len(reading.result()) == 10_000


async def test_a_turn_writes_little_to_the_disk(tmp_path: Path, record: Record) -> None:
    store, journal = SqliteStore(tmp_path / "s.db"), tmp_path / "s.db-wal"
    for _ in range(500):
        await store.add_messages(KEY, [QUESTION, ANSWER])
    await store._database.run_outside_transaction(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
    for _ in range(20):
        await store.add_messages(KEY, [QUESTION, ANSWER])
    written = journal.stat().st_size / 20 / 1024
    await store.aclose()
    print(f"\na turn of two messages writes {written:.1f} KiB")
    record("written to the journal for a turn of two messages", written, None, "KiB")
    assert written <= 20


async def test_the_file_grows_by_what_is_said(tmp_path: Path, record: Record) -> None:
    store = SqliteStore(tmp_path / "s.db")
    session = Session(store)
    await session.open("t")
    for _ in range(1000):
        await session.append(QUESTION, ANSWER)
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        said = connection.execute("SELECT sum(length(body)) FROM items").fetchone()[0]
    size = (tmp_path / "s.db").stat().st_size
    ratio = size / said
    print(f"\nfile size against the JSON in it: {ratio:.2f}")
    record("size of the file", size / 1e6, said / 1e6, "MB")
    # The length of these messages is the worst case: a page of 1 KiB holds one row of them, and two that are shorter.
    assert ratio < 2.2

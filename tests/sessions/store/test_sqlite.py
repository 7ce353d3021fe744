"""Tests the contents of the tables, and errors that only a store in a file can have."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agent_kernel.core.messages import Media, assistant, user
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.sessions.file import rows
from tests.sessions.talk import KEY, Talk, calls, result


async def test_a_heartbeat_between_judging_and_closing_saves_the_turn(file_store: SqliteStore) -> None:
    ticks = iter(range(1, 1_000_000))
    file_store._clock = lambda: float(next(ticks))
    owner = Owner("slow", 1, boot="another-boot", machine="another-machine")
    talk = await Talk.begin(file_store, owner)
    take_over = file_store._take_over

    async def late(turn: Turn, owner: Owner, stale_heartbeat: float) -> Turn | None:
        assert await file_store.heartbeat(turn, owner)
        return await take_over(turn, owner, stale_heartbeat)

    file_store._take_over = late  # type: ignore[method-assign]  # the moment between the two transactions of recover
    ticks = iter(range(1000, 1_000_000))
    assert await file_store.recover() == []
    assert await talk.close()


async def test_rows_repeat_what_queries_need(file_store: SqliteStore, path: Path) -> None:
    await file_store.create(KEY)
    owner = Owner.here()
    turn = await file_store.open_turn(Turn("t", KEY, cell="cell-1", epoch="epoch-1"), owner)
    await file_store.append(turn, owner, [user("é"), calls("c1")], 0)
    await file_store.close_turn(turn, owner, "cancelled", "stop")
    found = rows(path, "SELECT seq, kind, call_id, cell, epoch FROM items ORDER BY seq")
    assert found == [
        (1, "message", None, "cell-1", "epoch-1"),
        (2, "calls", None, "cell-1", "epoch-1"),
        (3, "result", "c1", "cell-1", "epoch-1"),
    ]
    assert rows(path, "SELECT body FROM items WHERE body LIKE '%é%'") != []


async def test_a_blob_is_stored_once_and_goes_away(file_store: SqliteStore, path: Path) -> None:
    picture = Media.of("image/png", os.urandom(1000))
    talks = [await Talk.begin(file_store, Owner.here(), id=f"s{n}") for n in range(2)]
    for talk in talks:
        await talk.say(user("look", [picture, replace(picture, data=None)]))
        await talk.close()
    assert rows(path, "SELECT count(*), sum(size) FROM blobs") == [(1, 1000)]
    await file_store.delete(talks[0].key)
    assert rows(path, "SELECT count(*) FROM blobs") == [(1,)]
    await file_store.delete(talks[1].key)
    for table in ("blobs", "media", "items", "turns", "sessions"):
        assert rows(path, f"SELECT count(*) FROM {table}") == [(0,)]


# ---------------------------------------------------------------------------------------------- rows that do not decode


def spoil(path: Path, *seqs: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        for seq in seqs:
            other.execute("UPDATE items SET body = 'not valid json {{{' WHERE seq = ?", (seq,))


async def test_a_row_that_does_not_decode_hides_only_itself(
    file_store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await file_store.add_turn(Turn("t1", KEY), [user(f"valid {n}") for n in (1, 2, 3)] + [user("bad")])
    spoil(path, 4)
    assert [item.message.text for item in await file_store.latest(KEY, 2)] == ["valid 2", "valid 3"]
    assert len(await file_store.latest(KEY)) == 3
    assert len((await file_store.everything(KEY))[1]) == 3
    assert "item 4 of session s cannot be decoded" in caplog.text
    assert "not valid" not in caplog.text


async def test_a_round_of_which_a_row_does_not_decode_is_left_out_whole(file_store: SqliteStore, path: Path) -> None:
    await file_store.add_turn(
        Turn("t1", KEY),
        [user("q"), calls("a", "b"), result("a"), result("b"), assistant("x"), calls("c"), result("c"), assistant("y")],
    )
    spoil(path, 3, 6)
    assert [item.seq for item in await file_store.latest(KEY)] == [1, 5, 8]


async def test_pop_takes_rows_that_do_not_decode_on_its_way(file_store: SqliteStore, path: Path) -> None:
    await file_store.add_turn(Turn("t1", KEY), [user("valid"), user("bad"), user("bad too")])
    spoil(path, 2, 3)
    assert [item.message.text for item in await file_store.pop(KEY)] == ["valid"]
    assert rows(path, "SELECT count(*) FROM items") == [(0,)]
    await file_store.add_turn(Turn("t2", KEY), [user("bad")])
    spoil(path, 4)
    assert await file_store.pop(KEY) == []
    assert rows(path, "SELECT count(*) FROM items") == [(0,)]


# ---------------------------------------------------------------------------------------- what a long session costs


async def steps(store: SqliteStore, call: Callable[[], Awaitable[object]]) -> int:
    """Return the hundreds of virtual-machine steps that SQLite executes during a call."""
    count = [0]

    def tick() -> int:
        count[0] += 1
        return 0

    def watch(db: sqlite3.Connection) -> None:
        db.set_progress_handler(tick, 100)

    await store._database.read(watch)
    await call()
    await store._database.read(lambda db: db.set_progress_handler(None, 0))
    return count[0]


async def test_a_long_session_costs_no_more_where_an_index_helps() -> None:
    store = MemoryStore()
    costs: list[list[int]] = []
    for turns in (20, 1000):
        key = SessionKey("local", f"s{turns}")
        for n in range(turns):
            await store.add_turn(Turn(f"t{n}", key), [user("q"), calls("c"), result("c"), assistant("a")])
        last = f"t{turns - 1}"
        await store.branch(key, before=last, name="edit")
        await store.add_turn(Turn("edited", key), [user("q")])
        done: list[Callable[[], Awaitable[object]]] = [
            lambda key=key: store.latest(key, 20, failed=False),  # type: ignore[misc]  # bound per loop
            lambda key=key: store.turns(key, 20),  # type: ignore[misc]
            lambda key=key, last=last: store.siblings(key, last),  # type: ignore[misc]
            lambda key=key: store.pop(key),  # type: ignore[misc]
            lambda key=key: store.pop(key),  # type: ignore[misc]
            lambda key=key: store.turn("local", "edited"),  # type: ignore[misc]
        ]
        costs.append([await steps(store, call) for call in done])
    short, long = costs
    assert all(more <= less + 10 for less, more in zip(short, long, strict=True)), costs  # reading all: 200 and more
    await store.aclose()


async def test_sessions_that_are_due_have_their_counts(file_store: SqliteStore, owner: Owner) -> None:
    for name in ("one", "two"):
        talk = await Talk.begin(file_store, owner, name, f"turn of {name}")
        await talk.say(user("a"), assistant("b"))
        await talk.close()
    expected = [(session.last_seq, session.turn_count) for session in await file_store.list("local")]
    assert expected == [(2, 1), (2, 1)]
    assert [(session.last_seq, session.turn_count) for session in await file_store.idle(2**40)] == expected
    assert [(session.last_seq, session.turn_count) for session in await file_store.excess(0)] == expected
    assert [session.key.id for session in await file_store.excess(1)] == ["one"]


async def test_an_append_renews_the_lease_at_most_once_a_second_and_always_keeps_its_pending_calls(
    path: Path, owner: Owner
) -> None:
    now = [1000.0]
    store = SqliteStore(path, clock=lambda: now[0])
    talk = await Talk.begin(store, owner)
    seen = []
    for second, message in ((1000.5, user("a")), (1000.6, calls("c1")), (1000.7, result("c1")), (1002.0, user("b"))):
        now[0] = second
        await talk.say(message)
        seen.append(rows(path, "SELECT heartbeat, pending FROM turns")[0])
    await store.aclose()
    assert [beat for beat, _ in seen] == [1000.0, 1000.6, 1000.7, 1002.0]
    assert ["c1" in str(pending) for _, pending in seen] == [False, True, False, False]

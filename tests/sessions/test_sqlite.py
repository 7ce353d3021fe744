"""What the tables hold, and what only a store in a file can get wrong."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from agent_kernel.messages import Media, user
from agent_kernel.sessions.model import Owner, Turn
from agent_kernel.sessions.sqlite import SqliteStore
from tests.sessions.file import rows
from tests.sessions.talk import KEY, Talk, calls


async def test_a_heartbeat_between_judging_and_closing_saves_the_turn(file_store: SqliteStore) -> None:
    ticks = iter(range(1, 1_000_000))
    file_store._clock = lambda: float(next(ticks))
    owner = Owner("slow", 1, boot="another-boot", machine="another-machine")
    talk = await Talk.begin(file_store, owner)
    take_over = file_store._take_over

    async def late(turn: Turn, owner: Owner, seen: float) -> Turn | None:
        assert await file_store.heartbeat(turn, owner)
        return await take_over(turn, owner, seen)

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

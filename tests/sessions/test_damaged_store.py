"""Tests a damaged file: what is detected, repaired and set aside, and that the repair loses no data."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agent_kernel.core.messages import Media, ToolCall, assistant, user
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.sessions.file import rows
from tests.sessions.talk import KEY, Talk, calls, result

SMALL = Media.of("image/png", b"\x89PNG small")
LARGE = Media.of("image/png", b"\x89PNG" + bytes(100_000))
TEXTS = ["first", "", "2", "answer", "second", "seen"]


async def fill_store(store: SqliteStore) -> None:
    """Store a session with six items in two turns, two branches and a medium, and a second session."""
    await store.create(KEY, "title")
    await store.add_turn(Turn("t1", KEY), [user("first"), calls("a"), result("a"), assistant("answer")])
    await store.add_turn(Turn("t2", KEY), [user("second", [SMALL]), assistant("seen")])
    await store.branch(KEY, before="t2", name="other")
    await store.add_turn(Turn("t3", KEY), [user("third"), assistant("elsewhere")])
    await store.switch(KEY, "main")
    await store.remember(KEY, "scope", {1: "h1", 4: "h2"})
    await store.bind("local", "/root", "a.ipynb", KEY.id)
    await store.add_turn(Turn("x", SessionKey("local", "other")), [user("untouched")])


def damage(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
            # Not ``rowcount``, which is -1 after an INSERT where the locale is Turkish.
            assert connection.execute("SELECT changes()").fetchone()[0] > 0, statement


async def texts(store: SqliteStore, branch: str | None = None) -> list[str]:
    return [item.message.text for item in await store.latest(KEY, branch=branch)]


async def kinds(store: SqliteStore, namespace: str | None = None) -> set[str]:
    return {fault.kind for fault in await store.verify(namespace)}


async def test_a_store_that_was_used_has_no_faults(file_store: SqliteStore, owner: Owner) -> None:
    await fill_store(file_store)
    talk = Talk(file_store, owner, KEY, await file_store.open_turn(Turn("t4", KEY), owner))
    await talk.say(user("more"), assistant("", [ToolCall("b", "python", {})]))
    assert await file_store.verify() == [], "a call of an open turn may still be answered"
    await talk.close("cancelled", "stopped")
    await file_store.fork(KEY, SessionKey("local", "copy"))
    await file_store.pop(KEY)
    await file_store.drop_branch(KEY, "other")
    assert await file_store.verify() == []
    assert await file_store.repair() == []


MENDED = [
    ("UPDATE sessions SET head = 2 WHERE id = 's'", "head", TEXTS),
    ("UPDATE sessions SET turns = 1 WHERE id = 's'", "turn_count", TEXTS),
    ("UPDATE sessions SET bytes = 7 WHERE id = 's'", "bytes", TEXTS),
    ("UPDATE sessions SET metadata = '{' WHERE id = 's'", "description", TEXTS),
    ("UPDATE turns SET usage = 'x' WHERE id = 't1'", "turn_record", TEXTS),
    ("DELETE FROM turns WHERE id = 't2'", "no_turn", TEXTS),
    ("DELETE FROM sessions WHERE id = 's'", "no_session", TEXTS),
    ("DELETE FROM media WHERE session = 's'", "media_row", TEXTS),
    ("UPDATE items SET role = 'tool' WHERE session = 's' AND seq = 1", "columns", TEXTS),
    ("UPDATE branches SET segment = 9 WHERE name = 'other'", "branch", TEXTS),
    (
        "DELETE FROM branches WHERE name = 'main' AND session = 's'",
        "current_branch",
        ["first", "", "2", "answer", "third", "elsewhere"],
    ),
    ("UPDATE sessions SET segment = 1 WHERE id = 's'", "current_branch", TEXTS),
    ("DELETE FROM segments WHERE session = 's'", "lost_segment", TEXTS),
    ("DELETE FROM items WHERE session = 's' AND seq = 4", "opening", ["first", "", "2", "second", "seen"]),
    ("DELETE FROM items WHERE session = 's' AND seq = 3", "no_result", ["first", "answer", "second", "seen"]),
    ("DELETE FROM items WHERE session = 's' AND seq = 2", "no_call", ["first", "answer", "second", "seen"]),
    ("UPDATE items SET body = '{' WHERE session = 's' AND seq = 4", "body", ["first", "", "2", "second", "seen"]),
    ("UPDATE blobs SET data = x'00'", "wrong_bytes", TEXTS),
    ("INSERT INTO blobs SELECT namespace, 'unused', mime, size, data FROM blobs", "unused_bytes", TEXTS),
    ("DELETE FROM branches WHERE name = 'other'", "hidden_items", TEXTS),
]


@pytest.mark.parametrize("case", MENDED, ids=[f"{row[1]}-{at}" for at, row in enumerate(MENDED)])
async def test_what_is_damaged_is_found_and_mended_or_set_aside(
    file_store: SqliteStore, path: Path, owner: Owner, case: tuple[str, str, list[str]]
) -> None:
    statement, kind, left = case
    await fill_store(file_store)
    damage(path, statement)
    found = await file_store.verify()
    assert kind in {fault.kind for fault in found}
    assert await file_store.verify() == found, "to look changes nothing"
    told = await file_store.repair()
    assert kind in {fault.kind for fault in told if fault.mended}
    assert await kinds(file_store) <= {"no_bytes"}, "what is lost stays told"
    assert await texts(file_store) == left
    talk = Talk(file_store, owner, KEY, await file_store.open_turn(Turn("next", KEY), owner))
    await talk.say(user("and goes on"))
    await talk.close()
    assert await texts(file_store) == [*left, "and goes on"]


async def test_what_is_set_aside_can_be_read_until_its_session_is_deleted(file_store: SqliteStore, path: Path) -> None:
    await fill_store(file_store)
    (body,) = rows(path, "SELECT body FROM items WHERE session = 's' AND seq = 2")[0]
    damage(path, "DELETE FROM items WHERE session = 's' AND seq = 3")
    await file_store.repair()
    kept = rows(path, "SELECT origin, json_extract(row, '$.body'), why FROM quarantine")
    assert kept == [("items", body, "no_result: item(s) 2: 1 call(s) have no result")]
    assert (await file_store.stats())["set_aside"] == 1
    await file_store.delete(KEY)
    assert (await file_store.stats())["set_aside"] == 0


async def test_bytes_that_are_lost_are_told_and_the_message_stays(file_store: SqliteStore, path: Path) -> None:
    await fill_store(file_store)
    damage(path, "DELETE FROM blobs")
    (fault,) = [fault for fault in await file_store.repair() if fault.kind == "no_bytes"]
    assert (fault.session, fault.mended) == ("s", "")
    assert await texts(file_store) == TEXTS


async def test_a_large_medium_is_verified_too(file_store: SqliteStore, path: Path) -> None:
    await file_store.add_turn(Turn("t", KEY), [user("look", [LARGE])])
    assert await file_store.verify() == []
    for file in path.parent.rglob("*"):
        if file.name == LARGE.hash:
            file.write_bytes(b"something else")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE blobs SET data = x'00' WHERE length(data) > 0")
    assert await kinds(file_store) <= {"no_bytes", "wrong_bytes"}
    assert await kinds(file_store)


async def test_one_namespace_can_be_looked_at_alone(file_store: SqliteStore, path: Path) -> None:
    await fill_store(file_store)
    await file_store.add_turn(Turn("t", SessionKey("ann", "s")), [user("hers")])
    damage(path, "UPDATE sessions SET head = 0 WHERE namespace = 'ann'")
    assert await kinds(file_store, "local") == set()
    assert await kinds(file_store, "ann") == {"head"}
    assert (await file_store.stats("ann"))["sessions"] == 1


async def test_a_file_that_is_damaged_below_its_tables_is_told(path: Path) -> None:
    store = SqliteStore(path)
    await fill_store(store)
    await store.aclose()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_master WHERE name = 'failed_turns'")
        connection.commit()
    store = SqliteStore(path)
    assert "file" in await kinds(store)
    await store.aclose()


async def test_statistics_count_what_there_is(file_store: SqliteStore) -> None:
    await fill_store(file_store)
    found = await file_store.stats()
    assert (found["sessions"], found["turns"], found["items"], found["media"]) == (2, 4, 9, 1)
    assert found["media_bytes"] == SMALL.size
    assert found["file_bytes"] > 0
    empty = await file_store.stats("nobody")
    assert (empty["sessions"], empty["bytes"], empty["last_used"]) == (0, 0, None)


async def test_after_a_vacuum_deleted_text_is_in_no_file(file_store: SqliteStore, path: Path) -> None:
    await fill_store(file_store)
    secret = "the-launch-code-is-0000"
    key = SessionKey("local", "secret")
    await file_store.add_turn(Turn("t", key), [user(secret * 500), assistant(secret)])
    await file_store.fold()
    await file_store.delete(key)
    assert await file_store.vacuum() > 0
    assert not [file.name for file in path.parent.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
    assert await texts(file_store) == TEXTS


async def test_a_vacuum_works_beside_another_process_that_has_the_file_open(
    file_store: SqliteStore, path: Path
) -> None:
    await fill_store(file_store)
    other = SqliteStore(path)
    assert await other.info(KEY) is not None
    await file_store.delete(SessionKey("local", "other"))
    await file_store.vacuum()
    assert path.with_name("sessions.db-wal").stat().st_size == 0
    await other.add_turn(Turn("later", KEY), [user("still works")])
    assert (await texts(file_store))[-1] == "still works"
    await other.aclose()

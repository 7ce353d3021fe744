"""Tests large media in files beside the store: complete before a row names them, deleted when no row does."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest, StoreFull
from agent_kernel.core.messages import Media, user
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.sessions.tables import blobs as rows_of_blobs
from tests.sessions.file import Start, rows
from tests.sessions.talk import KEY, Talk, result

LARGE = Media.of("image/png", bytes(range(256)) * 200)
SMALL = Media.of("image/png", b"small" * 100)


def files(path: Path) -> list[Path]:
    return sorted(file for file in path.with_name(f"{path.name}.blobs").rglob("*") if file.is_file())


async def look(store: SqliteStore, *media: Media, id: str = "s", namespace: str = "local") -> SessionKey:
    key = SessionKey(namespace, id)
    await store.add_turn(Turn("t1", key), [user("look", media)])
    return key


async def test_large_bytes_are_a_file_and_small_ones_stay_in_their_row(file_store: SqliteStore, path: Path) -> None:
    await look(file_store, LARGE, SMALL)
    [file] = files(path)
    assert (file.name, file.read_bytes()) == (LARGE.hash, LARGE.data)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parents[2].stat().st_mode & 0o777 == 0o700
    assert rows(path, "SELECT size, length(data) FROM blobs ORDER BY size") == [(SMALL.size, SMALL.size), (51200, 0)]
    assert await file_store.blob(KEY, LARGE.hash) == LARGE.data
    assert await file_store.blob(KEY, SMALL.hash) == SMALL.data


async def test_a_file_is_on_the_disk_before_a_row_names_it(
    file_store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def watched(name: str) -> Callable[..., object]:
        real = getattr(os, name)

        def call(*arguments: object) -> object:
            events.append(name)
            return real(*arguments)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, watched(name))
    await file_store.create(KEY)
    await file_store._database.write(
        lambda db: db.set_trace_callback(lambda said: events.append("row") if "INTO blobs" in said else None)
    )
    await look(file_store, LARGE)
    assert events == ["fsync", "replace", *["fsync"] * 4, "row"]
    assert rows(path, "SELECT count(*) FROM blobs") == [(1,)]


async def test_the_same_bytes_are_one_file_of_a_namespace(file_store: SqliteStore, path: Path) -> None:
    for id in "ab":
        await look(file_store, LARGE, id=id)
    assert len(files(path)) == 1
    await look(file_store, LARGE, namespace="other")
    assert len(files(path)) == 2
    assert await file_store.delete(SessionKey("local", "a"))
    assert len(files(path)) == 2
    assert await file_store.delete(SessionKey("local", "b"))
    assert len(files(path)) == 1
    assert await file_store.blob(SessionKey("other", "s"), LARGE.hash) == LARGE.data


async def test_a_file_goes_with_the_last_item_that_names_it(file_store: SqliteStore, path: Path) -> None:
    await look(file_store, LARGE)
    await file_store.pop(KEY)
    assert files(path) == []
    await file_store.add_turn(Turn("t2", KEY), [user("again", [LARGE])])
    assert await file_store.blob(KEY, LARGE.hash) == LARGE.data
    await file_store.clear(KEY)
    assert files(path) == []


async def test_a_fork_into_another_namespace_has_a_file_of_its_own(file_store: SqliteStore, path: Path) -> None:
    await look(file_store, LARGE, SMALL)
    copy = SessionKey("other", "copy")
    await file_store.fork(KEY, copy)
    assert len(files(path)) == 2
    await file_store.delete(KEY)
    assert await file_store.blob(copy, LARGE.hash) == LARGE.data
    assert await file_store.blob(copy, SMALL.hash) == SMALL.data


@pytest.mark.parametrize("damage", [b"", b"other bytes", None])
async def test_a_damaged_file_is_reported_and_not_served(
    file_store: SqliteStore, path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    await look(file_store, LARGE)
    [file] = files(path)
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    assert await file_store.blob(KEY, LARGE.hash) is None
    assert LARGE.hash in caplog.text
    assert [fault.kind for fault in await file_store.verify()] == ["no_bytes"]
    await file_store.add_turn(Turn("t2", KEY), [user("the same again", [LARGE])])
    assert await file_store.blob(KEY, LARGE.hash) == LARGE.data
    assert await file_store.verify() == []


async def test_a_full_disk_refuses_the_write_and_leaves_nothing(
    file_store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await file_store.create(KEY)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFull):
        await look(file_store, LARGE)
    monkeypatch.undo()
    assert files(path) == []
    assert await file_store.latest(KEY) == []
    await look(file_store, LARGE)


async def test_a_refused_batch_leaves_a_file_that_is_collected_by_age(file_store: SqliteStore, path: Path) -> None:
    talk = await Talk.begin(file_store, Owner.here())
    with pytest.raises(InvalidRequest):
        await talk.say(user("look", [LARGE]), result("none"))
    await talk.close()
    other = await look(file_store, Media.of("image/png", LARGE.data + b"x" if LARGE.data else b""), id="other")
    orphan = path.with_name(f"{path.name}.blobs") / "0" / "ab" / "abc.part"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"half")
    before = len(files(path))
    assert await file_store._database.write(rows_of_blobs.collect_garbage) == 0
    late = os.stat(orphan).st_mtime + rows_of_blobs.GRACE_S + 1
    assert await file_store._database.write(lambda db: rows_of_blobs.collect_garbage(db, late)) >= 4
    assert len(files(path)) < before
    assert len(files(path)) == 1
    assert len(await file_store.latest(other)) == 1


async def test_a_file_that_could_not_be_taken_away_fails_nothing_and_goes_later(
    file_store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await look(file_store, LARGE)

    def broken(db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(rows_of_blobs, "delete_unnamed_files", broken)
    assert await file_store.delete(KEY)
    monkeypatch.undo()
    assert len(files(path)) == 1
    await file_store.create(KEY)
    assert files(path) == []


async def test_rows_of_an_older_version_stay_readable_and_can_be_moved_out(file_store: SqliteStore, path: Path) -> None:
    await look(file_store, LARGE, SMALL)
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        older.execute("UPDATE blobs SET data = ? WHERE hash = ?", (LARGE.data, LARGE.hash))
    files(path)[0].unlink()
    assert await file_store.blob(KEY, LARGE.hash) == LARGE.data
    await look(file_store, LARGE, id="names it too")
    assert files(path) == []
    assert await file_store._database.write(rows_of_blobs.move_large_rows_out) == LARGE.size
    assert len(files(path)) == 1
    assert rows(path, "SELECT max(length(data)) FROM blobs") == [(SMALL.size,)]
    assert await file_store.blob(KEY, LARGE.hash) == LARGE.data
    assert await file_store._database.write(rows_of_blobs.move_large_rows_out) == 0


async def test_a_store_in_memory_has_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = MemoryStore()
    await look(store, LARGE)
    assert await store.blob(KEY, LARGE.hash) == LARGE.data
    await store.delete(KEY)
    await store.aclose()
    assert list(tmp_path.iterdir()) == []


async def test_processes_that_store_and_forget_one_picture_lose_none(start: Start, path: Path) -> None:
    code = """
    picture = Media.of("image/png", bytes(range(256)) * 200)
    key = SessionKey("local", "sNAME")
    for n in range(25):
        await store.add_turn(Turn(f"t{n}", key), [user("look", [picture])])
        assert await store.blob(key, picture.hash) == picture.data
        await (store.delete(key) if n % 2 else store.pop(key))
    await store.add_turn(Turn("last", key), [user("look", [picture])])
    """
    for child in [start(code.replace("NAME", str(n))) for n in range(3)]:
        child.done()
    store = SqliteStore(path)
    for n in range(3):
        assert await store.blob(SessionKey("local", f"s{n}"), LARGE.hash) == LARGE.data
        await store.delete(SessionKey("local", f"s{n}"))
    assert files(path) == []
    await store.aclose()

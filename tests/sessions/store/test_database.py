"""Tests the database file, its modes and its journal; corruption, full disks, locks, cancelled callers."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest, StoreCorrupt, StoreError, StoreFull
from agent_kernel.core.messages import assistant, user
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.sessions import shared_disk
from agent_kernel.sessions.blob_files import StoreConnection
from agent_kernel.sessions.store import database
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.store.moved_store_check import MovedStoreCheck
from agent_kernel.sessions.store.schema_migration import migration_scripts
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.narrowing import not_none
from tests.sessions.file import NEXT, made, migrate, rows, writable_at_once
from tests.sessions.talk import KEY, Talk, calls


async def test_nothing_is_made_before_the_first_use(path: Path) -> None:
    store = SqliteStore(path)
    assert not path.parent.exists()
    await store.aclose()
    assert not path.parent.exists()


async def test_the_file_is_private(file_store: SqliteStore, path: Path) -> None:
    await file_store.create(KEY)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == {f"sessions.db{end}": 0o600 for end in ("", "-wal", "-shm", ".reserve")}


async def test_a_turn_writes_a_few_small_pages(file_store: SqliteStore, path: Path) -> None:
    turn = [user("q" * 300), assistant("a" * 300)]
    for _ in range(50):
        await file_store.add_messages(KEY, turn)
    before = path.with_name("sessions.db-wal").stat().st_size
    for _ in range(20):
        await file_store.add_messages(KEY, turn)
    assert path.with_name("sessions.db-wal").stat().st_size - before <= 20 * 20 * 1024


async def test_a_file_of_an_earlier_version_keeps_its_pages_and_the_size_of_its_journal(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as earlier:
        earlier.execute("PRAGMA page_size = 4096")
        earlier.execute("PRAGMA journal_mode = WAL")
    store = SqliteStore(path)
    await store.add_messages(KEY, [user("q")])
    pages = await store._database.read(
        lambda db: [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "wal_autocheckpoint")]
    )
    await store.aclose()
    assert pages == [4096, 1024]


class TurkishCursor(sqlite3.Cursor):
    """A cursor that behaves as Python does in the locale tr_TR, where it takes INSERT for a query."""

    rowcount = -1


class TurkishConnection(StoreConnection):
    def execute(self, *statement: Any) -> sqlite3.Cursor:
        cursor = TurkishCursor(self)
        return cursor.execute(*statement)


async def test_the_language_of_the_machine_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "StoreConnection", TurkishConnection)
    store, owner = SqliteStore(path), Owner.here()
    first = await store.create(KEY, "once")
    assert await store.create(KEY, "twice") == first
    turn = await store.open_turn(Turn("t", KEY), owner)
    assert await store.heartbeat(turn, owner)
    assert not await store.heartbeat(turn, dataclasses.replace(owner, instance="another"))
    assert not await store.unbind("n", "root", "a.ipynb")
    assert await store.revoke(KEY) == 0
    await store.aclose()


async def test_a_file_that_others_can_read_is_made_private(path: Path) -> None:
    path.parent.mkdir()
    path.touch(0o644)
    store = SqliteStore(path)
    await store.create(KEY)
    await store.aclose()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_local_disk_gets_wal(file_store: SqliteStore, path: Path) -> None:
    await file_store.create(KEY)
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]


async def test_a_shared_disk_gets_a_rollback_journal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = SqliteStore(path)
    await local.create(KEY)
    await local.aclose()
    monkeypatch.setattr(shared_disk, "is_shared_disk", lambda path: True)
    shared = SqliteStore(path)
    assert await shared.info(KEY) is not None
    assert rows(path, "PRAGMA journal_mode") == [("delete",)]
    talk = await Talk.begin(shared, Owner.here())
    await talk.say(user("hello"))
    assert await talk.texts() == ["hello"]
    await shared.aclose()


async def test_history_survives_closing_and_opening(path: Path) -> None:
    first = SqliteStore(path)
    talk = await Talk.begin(first, Owner.here())
    await talk.say(user("hello"), assistant("hi"))
    await talk.close()
    await first.aclose()
    second = SqliteStore(path)
    assert [item.message.text for item in await second.latest(KEY)] == ["hello", "hi"]
    await second.aclose()


async def test_a_file_put_in_the_place_of_ours_is_the_one_used(file_store: SqliteStore, path: Path) -> None:
    """SQLite read the journal of ours into it: the new file had the rows of the old one, or was damaged."""
    await file_store.create(KEY, "written last")
    path.rename(path.with_name("moved.db"))
    backup = SqliteStore(path.with_name("backup.db"))  # a new one at our path is refused while our journal is there
    await backup.create(KEY, "new file")
    await backup.aclose()
    path.with_name("backup.db").rename(path)
    assert not_none(await file_store.info(KEY)).title == "new file"
    assert await file_store.delete(KEY)
    assert rows(path, "SELECT title FROM sessions") == []
    assert rows(path.with_name("moved.db"), "SELECT title FROM sessions") == [("written last",)]


@pytest.mark.parametrize("whole", [False, True], ids=["file", "directory"])
async def test_a_file_that_is_gone_is_not_made_anew(path: Path, *, whole: bool) -> None:
    """It was, in silence, and looked as if all conversations had been lost."""
    store = SqliteStore(path)
    await store.create(KEY, "kept")
    place = path.parent if whole else path
    moved = place.with_name("moved")
    place.rename(moved)
    for call in (store.info(KEY), store.list("local"), store.create(KEY), store.rename(KEY, "x"), store.delete(KEY)):
        with pytest.raises(StoreError, match="moved away or deleted") as refused:
            await call
        assert "Nothing was written" in refused.value.hint
        assert not path.exists()
    moved.rename(place)
    assert not_none(await store.info(KEY)).title == "kept"
    await store.rename(KEY, "back")
    assert rows(path, "SELECT title FROM sessions") == [("back",)]
    await store.aclose()


async def write_and_exit(path: Path, title: str) -> None:
    """Run a process that writes to a store and exits without closing it, so that its journal remains."""
    code = f"""
import asyncio, os
from pathlib import Path
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.store.sqlite import SqliteStore
async def main():
    await SqliteStore(Path({str(path)!r})).create(SessionKey({KEY.namespace!r}, {KEY.id!r}), {title!r})
    os._exit(0)
asyncio.run(main())
"""
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("empty", [False, True], ids=["gone", "empty"])
async def test_a_journal_without_its_file_is_not_deleted_for_an_empty_store(path: Path, *, empty: bool) -> None:
    """SQLite did that in silence, and what was written last was lost even to whoever found the file again."""
    await write_and_exit(path, "kept")
    journal, moved = path.with_name("sessions.db-wal"), path.with_name("moved.db")
    path.rename(moved)
    if empty:
        path.touch()
    written = journal.read_bytes()
    assert written
    store = SqliteStore(path)
    for call in (store.info(KEY), store.list("local"), store.create(KEY), store.delete(KEY)):
        with pytest.raises(StoreError, match=r"sessions.db is gone, but sessions.db-wal beside it holds") as refused:
            await call
        assert "Put sessions.db back" in refused.value.hint
        assert "move sessions.db-wal away" in refused.value.hint
    assert journal.read_bytes() == written
    assert path.exists() is empty
    moved.rename(path)
    assert not_none(await store.info(KEY)).title == "kept"
    await store.aclose()


async def test_a_store_opens_while_another_process_creates_its_file(path: Path) -> None:
    """The journal of the first transaction lies beside an empty file. That is not a database whose content is gone."""
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE first (a)")
        assert path.stat().st_size == 0
        assert path.with_name("sessions.db-journal").stat().st_size > 0
        MovedStoreCheck(path, "sessions.db").check()
        other.execute("ROLLBACK")


async def test_a_rollback_journal_without_its_file_is_not_deleted_either(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE first (a)")
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO first VALUES (1)")
        path.rename(path.with_name("moved.db"))
        with pytest.raises(StoreError, match=r"sessions.db-journal beside it holds"):
            MovedStoreCheck(path, "sessions.db").check()


async def test_many_connections_create_one_file_at_the_same_time(tmp_path: Path) -> None:
    for n in range(20):
        stores = [SqliteStore(tmp_path / f"{n}.db") for _ in range(6)]
        await asyncio.gather(*(store.create(SessionKey("local", str(id))) for id, store in enumerate(stores)))
        assert len(await stores[0].list("local")) == 6
        for store in stores:
            await store.aclose()


async def test_an_empty_store_begins_once_the_journal_is_moved_away_too(path: Path) -> None:
    await write_and_exit(path, "old")
    path.rename(path.with_name("moved.db"))
    path.with_name("sessions.db-wal").rename(path.with_name("moved.db-wal"))
    store = SqliteStore(path)
    assert await store.list(KEY.namespace) == []
    await store.aclose()
    assert rows(path.with_name("moved.db"), "SELECT title FROM sessions") == [("old",)]


async def test_the_store_serves_several_event_loops(file_store: SqliteStore) -> None:
    await file_store.create(KEY)
    assert await asyncio.to_thread(lambda: asyncio.run(file_store.info(KEY))) is not None


@pytest.mark.parametrize("damage", ["text", "header", "middle"])
async def test_a_damaged_file_is_named_and_never_overwritten(path: Path, damage: str) -> None:
    await made(path)
    good = path.read_bytes()
    bad = {
        "text": b"not valid json {{{" * 500,
        "header": b"\0" * 100 + good[100:],
        "middle": good[:4096] + os.urandom(len(good) - 4096),
    }[damage]
    path.write_bytes(bad)
    store = SqliteStore(path)
    with pytest.raises(StoreCorrupt) as refused:
        await store.latest(KEY)
    assert str(path) in refused.value.message
    assert "Nothing was overwritten" in refused.value.hint
    await store.aclose()
    assert path.read_bytes() == bad
    path.write_bytes(good)
    again = SqliteStore(path)
    assert len(await again.latest(KEY)) == 1
    await again.aclose()


async def test_a_damaged_file_with_a_backup_names_the_backup(path: Path) -> None:
    await made(path)
    migrate(path, NEXT)
    path.write_bytes(b"x" * 5000)
    store = SqliteStore(path)
    with pytest.raises(StoreCorrupt, match=rf"restore sessions\.db\.bak-v{len(migration_scripts())}"):
        await store.info(KEY)
    await store.aclose()


async def test_a_store_that_was_repaired_goes_on_in_the_same_process(file_store: SqliteStore, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"x" * 5000)
    with pytest.raises(StoreCorrupt):
        await file_store.create(KEY)
    path.rename(path.with_name("damaged"))
    assert (await file_store.create(KEY)).key == KEY


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight megabytes; needs the right to mount."""
    point = tmp_path / "small"
    point.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", point], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield point
    subprocess.run(["umount", "-l", point], check=True)


async def test_a_full_disk_is_said_and_forgotten_when_there_is_space_again(small_disk: Path) -> None:
    store = SqliteStore(small_disk / "s.db")
    talk = await Talk.begin(store, Owner.here())
    await talk.say(user("before"))
    filler = small_disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with pytest.raises(StoreFull, match="No space left"):
        await talk.say(user("lost" * 30_000))
    assert await talk.texts() == ["before"]
    filler.unlink()
    await talk.say(user("after"))
    assert writable_at_once(small_disk / "s.db")
    assert await talk.close()
    assert await talk.texts() == ["before", "after"]
    await store.aclose()


@pytest.mark.parametrize("what", ["delete", "clear"])
async def test_on_a_full_disk_a_session_can_be_removed_and_space_comes_back(small_disk: Path, what: str) -> None:
    store = SqliteStore(small_disk / "s.db")
    talk = await Talk.begin(store, Owner.here())
    for n in range(20):
        await talk.say(user(os.urandom(2000).hex()), assistant(f"answer {n}"))
    await talk.close()
    with suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(512))
    with pytest.raises(StoreFull):
        await store.add_turn(Turn("more", KEY), [user(os.urandom(20_000).hex())])
    await (store.delete(KEY) if what == "delete" else store.clear(KEY))
    assert await store.latest(KEY) == []
    await store.add_turn(Turn("again", KEY), [user("there is space")])
    with suppress(StoreFull):
        for n in range(100):
            await store.add_turn(Turn(f"more-{n}", KEY), [user(os.urandom(20_000).hex())])
    await (store.delete(KEY) if what == "delete" else store.clear(KEY))
    assert await store.latest(KEY) == []
    assert await store.verify() == []
    await store.aclose()


async def test_a_disk_too_full_to_make_the_file_is_said(small_disk: Path) -> None:
    with suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    store = SqliteStore(small_disk / "data" / "s.db")
    with pytest.raises(StoreFull):
        await store.create(KEY)
    (small_disk / "filler").unlink()
    assert (await store.create(KEY)).key == KEY
    await store.aclose()


async def test_a_store_at_its_page_limit_refuses_and_recovers(file_store: SqliteStore, path: Path) -> None:
    talk = await Talk.begin(file_store, Owner.here())
    await file_store._database.read(lambda db: db.execute("PRAGMA max_page_count = 40").fetchone())
    long = os.urandom(200_000).hex()
    with pytest.raises(StoreFull):
        await talk.say(user(long), calls("c1"))
    assert writable_at_once(path)
    assert await talk.texts() == []
    await file_store._database.read(lambda db: db.execute("PRAGMA max_page_count = 1000000").fetchone())
    await talk.say(user(long))
    assert await talk.texts() == [long]


async def test_a_lock_that_is_never_given_back_is_named(
    file_store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.2)
    await file_store.create(KEY)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked by another program"):
            await file_store.rename(KEY, "no")
        assert (await file_store.info(KEY)) is not None
    await file_store.rename(KEY, "yes")


async def test_a_directory_in_the_place_of_the_file_is_an_error_of_the_store(path: Path) -> None:
    path.mkdir(parents=True)
    store = SqliteStore(path)
    with pytest.raises(StoreError, match=r"sessions\.db"):
        await store.create(KEY)
    await store.aclose()


class Gate:
    """Blocks the store's thread, so that a test can cancel a call at a chosen moment."""

    def __init__(self, store: SqliteStore) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.task = asyncio.ensure_future(store._database.read(self._park))

    def _park(self, _: sqlite3.Connection) -> None:
        self.reached.set()
        assert self.open.wait(30)

    async def release(self) -> None:
        self.open.set()
        await self.task


async def test_a_call_cancelled_before_it_began_never_happens(file_store: SqliteStore) -> None:
    talk = await Talk.begin(file_store, Owner.here())
    gate = Gate(file_store)
    waiting = asyncio.ensure_future(file_store.append(talk.turn, talk.owner, [user("never")], 0))
    await asyncio.to_thread(gate.reached.wait, 30)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not gate.task.done()
    await gate.release()
    assert await talk.texts() == []


async def test_a_call_cancelled_while_it_runs_ends_before_the_caller_does(
    file_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await Talk.begin(file_store, Owner.here())
    reached, go = threading.Event(), threading.Event()
    insert = database.Database._transact

    def slow(self: database.Database, begin: str, work: object) -> object:
        reached.set()
        assert go.wait(30)
        return insert(self, begin, work)  # type: ignore[arg-type]  # whatever it is, it is passed on

    monkeypatch.setattr(database.Database, "_transact", slow)
    running = asyncio.ensure_future(file_store.append(talk.turn, talk.owner, [user("kept")], 0))
    await asyncio.to_thread(reached.wait, 30)
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0.01)
    assert not running.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    monkeypatch.undo()
    assert await talk.texts() == ["kept"]


async def test_cancelling_at_any_moment_gives_all_or_nothing(file_store: SqliteStore) -> None:
    talk = await Talk.begin(file_store, Owner.here())
    for delay in [0, 0.0001, 0.0003, 0.0005, 0.001, 0.002] * 10:
        before = await talk.head()
        task = asyncio.ensure_future(file_store.append(talk.turn, talk.owner, [user("a"), calls("c")], before))
        await asyncio.sleep(delay)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert await talk.head() in (before, before + 2)
        await talk.close()
        talk = await talk.again(f"t{len(await file_store.turns(KEY)) + 1}")


async def test_a_failure_of_a_cancelled_call_is_its_cause(file_store: SqliteStore) -> None:
    talk = await Talk.begin(file_store, Owner.here())
    gate = Gate(file_store)
    await asyncio.to_thread(gate.reached.wait, 30)
    closing_store = asyncio.ensure_future(file_store.aclose())
    await asyncio.sleep(0)
    closing_store.cancel()
    await gate.release()
    with pytest.raises(asyncio.CancelledError):
        await closing_store
    with pytest.raises(StoreError):
        await talk.head()


@asynccontextmanager
async def held_writes(database: Database) -> AsyncIterator[None]:
    """Let the writes that begin meanwhile wait behind one that ends with the block."""
    begun, free = threading.Event(), threading.Event()

    def wait(db: sqlite3.Connection) -> None:
        begun.set()
        assert free.wait(30)

    block = asyncio.create_task(database.write(wait))
    assert await asyncio.to_thread(begun.wait, 30)
    yield
    await asyncio.sleep(0.05)
    free.set()
    await block


async def test_writes_that_wait_together_share_a_transaction_and_each_fails_by_itself(path: Path) -> None:
    database = Database(path)
    statements: list[str] = []
    await database.write(lambda db: db.set_trace_callback(statements.append))

    def bound(db: sqlite3.Connection, place: str) -> None:
        db.execute("INSERT INTO bindings (namespace, root, path, session) VALUES ('n', '/r', ?, 's')", (place,))
        if place == "refused":
            raise InvalidRequest("no")
        if place == "broken":
            raise RuntimeError("no")

    async def write(place: str) -> object:
        return await database.write(lambda db: bound(db, place))

    async with held_writes(database):
        waiting = asyncio.gather(*map(write, ("a", "refused", "b", "c")), return_exceptions=True)
    results = await waiting
    assert [type(result) for result in results] == [type(None), InvalidRequest, type(None), type(None)]
    assert sum("COMMIT" in statement for statement in statements) <= 2 + 1

    async with held_writes(database):
        waiting = asyncio.gather(*map(write, ("d", "broken", "e")), return_exceptions=True)
    results = await waiting
    assert [type(result) for result in results] == [type(None), RuntimeError, type(None)]
    rows = await database.read(lambda db: db.execute("SELECT path FROM bindings ORDER BY path").fetchall())
    assert [place for (place,) in rows] == ["a", "b", "c", "d", "e"]
    await database.aclose()


async def test_a_write_that_is_cancelled_while_it_waits_is_left_out_of_the_group(path: Path) -> None:
    database = Database(path)
    insert = "INSERT INTO bindings (namespace, root, path, session) VALUES ('n', '/r', ?, 's')"
    async with held_writes(database):
        tasks = [
            asyncio.create_task(database.write(lambda db, place=place: db.execute(insert, (place,)).rowcount))  # type: ignore[misc]  # bound per loop
            for place in "abc"
        ]
        await asyncio.sleep(0.05)
        tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [int, asyncio.CancelledError, int]
    rows = await database.read(lambda db: db.execute("SELECT path FROM bindings ORDER BY path").fetchall())
    assert [place for (place,) in rows] == ["a", "c"]
    await database.aclose()

"""Tests the schema versions of the store's file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from agent_kernel.core.errors import StoreCorrupt
from agent_kernel.core.messages import user
from agent_kernel.core.session import SessionKey, SessionQuery, Turn
from agent_kernel.sessions.store import schema_migration
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.narrowing import not_none
from tests.sessions.file import NEXT, made, migrate, rows, writable_at_once
from tests.sessions.talk import KEY


async def test_a_migration_keeps_the_data_and_a_backup(path: Path) -> None:
    await made(path)
    migrate(path, NEXT)
    assert rows(path, "SELECT note FROM sessions") == [("none",)]
    assert rows(path, "PRAGMA user_version") == [(len(schema_migration.migration_scripts()) + 1,)]
    backup = path.with_name(f"{path.name}.bak-v{len(schema_migration.migration_scripts())}")
    assert backup.stat().st_mode & 0o777 == 0o600
    old = SqliteStore(backup)
    assert [item.message.text for item in await old.latest(KEY)] == ["hello"]
    await old.aclose()


@pytest.mark.parametrize(
    ("metadata", "kept", "imported"),
    [
        (
            '{"note": "é", "agent_kernel.origin": {"id": "theirs", "sha256": "ab"}}',
            {"note": "é"},
            {"id": "theirs", "sha256": "ab"},
        ),
        ('{"agent_kernel.origin": "changed by a client"}', {}, {}),
        ('{"agent_kernel.origin": null}', {}, {}),
        ('{"note": {"agent_kernel.origin": 1}}', {"note": {"agent_kernel.origin": 1}}, None),
    ],
)
async def test_the_mark_of_an_import_moves_out_of_the_metadata(
    path: Path, metadata: str, kept: dict[str, object], imported: dict[str, object] | None
) -> None:
    path.parent.mkdir()
    before = next(
        at for at, script in enumerate(schema_migration.migration_scripts()) if "ADD COLUMN imported" in script
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        schema_migration.migrate(connection, path, schema_migration.migration_scripts()[:before])
        connection.executemany(
            "INSERT INTO sessions (namespace, id, title, created, updated, metadata) VALUES ('local', ?, '', 0, 0, ?)",
            [("s", metadata), ("x", "{")],
        )
    store = SqliteStore(path)
    session = not_none(await store.info(KEY))
    assert (session.metadata, session.imported) == (kept, imported)
    assert rows(path, "SELECT metadata, imported FROM sessions WHERE id = 'x'") == [("{", "null")]
    await store.aclose()


async def test_a_new_file_needs_no_backup(path: Path) -> None:
    await made(path)
    assert {file.name for file in path.parent.iterdir()} == {"sessions.db", "sessions.db.reserve"}


async def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    await made(path)
    with pytest.raises(sqlite3.OperationalError):
        migrate(path, NEXT, "CREATE TABLE half (x);\nINSERT INTO nowhere VALUES (1);")
    assert rows(path, "PRAGMA user_version") == [(len(schema_migration.migration_scripts()),)]
    assert rows(path, "SELECT name FROM sqlite_master WHERE name IN ('extra', 'half')") == []
    assert writable_at_once(path)


async def test_several_openers_migrate_once(path: Path) -> None:
    await made(path)
    failures: list[Exception] = []

    def opener() -> None:
        try:
            migrate(path, NEXT)
        except Exception as error:  # noqa: BLE001  # whatever it is, the test shows it
            failures.append(error)

    threads = [threading.Thread(target=opener) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert rows(path, "SELECT note FROM sessions") == [("none",)]


async def test_a_newer_file_is_refused_and_left_alone(path: Path) -> None:
    await made(path)
    migrate(path, NEXT)
    before = path.read_bytes()
    store = SqliteStore(path)
    with pytest.raises(StoreCorrupt, match=r"newer.*Upgrade") as refused:
        await store.latest(KEY)
    assert str(path) in refused.value.message
    await store.aclose()
    assert path.read_bytes() == before


async def test_another_programs_database_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE moz_places (url)")
        connection.commit()
    store = SqliteStore(path)
    with pytest.raises(StoreCorrupt, match="another program"):
        await store.create(KEY)
    await store.aclose()
    assert rows(path, "SELECT name FROM sqlite_master") == [("moz_places",)]


OLD = Path(__file__).parents[1] / "data" / "version_1.sql"


@pytest.fixture
async def old_store(path: Path) -> AsyncIterator[SqliteStore]:
    """A store on a file that the first version of the store wrote."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(OLD.read_text(encoding="utf-8"))
    store = SqliteStore(path)
    yield store
    await store.aclose()


async def test_what_the_first_version_wrote_is_read_as_it_was(old_store: SqliteStore, path: Path) -> None:
    assert rows(path, "PRAGMA user_version") == [(1,)]
    said = [item.message.text for item in await old_store.latest(KEY)]
    assert said == ["u1", "", "2", "a1", "u3", "a3", "u4", "a4"]
    turns = await old_store.turns(KEY)
    assert [(turn.id, turn.since, turn.state) for turn in turns] == [
        ("t1", 0, "committed"),
        ("t2", 4, "cancelled"),
        ("t3", 4, "failed"),
        ("t4", 6, "committed"),
        ("t5", 8, "cancelled"),
    ]
    assert turns[0].cell == "cell-t1"
    session = not_none(await old_store.info(KEY))
    assert (session.title, session.head, session.turns, session.branch) == ("An older one", 8, 5, "main")
    assert session.accessed == session.updated
    [picture] = (await old_store.latest(KEY))[0].message.media
    assert await old_store.blob(KEY, picture.hash) == b"\x89PNG" + bytes(60)
    assert await old_store.bound("local", "/r", "a.ipynb") == "s"
    assert rows(path, "PRAGMA user_version") == [(len(schema_migration.migration_scripts()),)]
    assert path.with_name(f"{path.name}.bak-v1").exists()


async def test_what_the_first_version_wrote_can_be_branched_and_continued(old_store: SqliteStore) -> None:
    await old_store.branch(KEY, before="t3")
    assert [turn.id for turn in await old_store.turns(KEY)] == ["t1"]
    [item] = await old_store.add_turn(Turn("t6", KEY), [user("u6")])
    assert item.seq == 9
    assert await old_store.siblings(KEY, "t6") == [("t3", "main"), ("t6", "branch-2")]
    assert [branch.turns for branch in await old_store.branches(KEY)] == [5, 2]
    empty = SessionKey("local", "empty")
    assert [branch.name for branch in await old_store.branches(empty)] == ["main"]
    await old_store.drop_branch(KEY, "main")
    assert [turn.id for turn in await old_store.turns(KEY)] == ["t1", "t6"]
    assert len(await old_store.search("local", SessionQuery("u6"))) == 1
    assert await old_store.verify() == []


async def test_a_turn_that_the_first_version_left_open_is_closed_where_it_began(old_store: SqliteStore) -> None:
    [closed] = await old_store.recover()
    assert (closed.id, closed.since, closed.state) == ("t2", 1, "interrupted")

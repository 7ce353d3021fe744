"""Versions of the store's file."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from agent_kernel.errors import StoreCorrupt
from agent_kernel.sessions import schema
from agent_kernel.sessions.sqlite import SqliteStore
from tests.sessions.file import NEXT, made, migrate, rows, writable_at_once
from tests.sessions.talk import KEY


async def test_a_migration_keeps_the_data_and_a_backup(path: Path) -> None:
    await made(path)
    migrate(path, NEXT)
    assert rows(path, "SELECT note FROM sessions") == [("none",)]
    assert rows(path, "PRAGMA user_version") == [(len(schema.scripts()) + 1,)]
    backup = path.with_name(f"{path.name}.bak-v{len(schema.scripts())}")
    assert backup.stat().st_mode & 0o777 == 0o600
    old = SqliteStore(backup)
    assert [item.message.text for item in await old.latest(KEY)] == ["hello"]
    await old.aclose()


async def test_a_new_file_needs_no_backup(path: Path) -> None:
    await made(path)
    assert [file.name for file in path.parent.iterdir()] == ["sessions.db"]


async def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    await made(path)
    with pytest.raises(sqlite3.OperationalError):
        migrate(path, NEXT, "CREATE TABLE half (x);\nINSERT INTO nowhere VALUES (1);")
    assert rows(path, "PRAGMA user_version") == [(len(schema.scripts()),)]
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

"""Tests what is on the disk when a write is acknowledged, and connections that fail to roll back or close."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from agent_kernel.core.errors import StoreError
from agent_kernel.core.messages import user
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.core.settings import Settings
from agent_kernel.sessions.blob_files import StoreConnection
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.turn import server_runtime
from tests.sessions.file import ROOT, rows, writable_at_once
from tests.sessions.talk import KEY, Talk

TURNS = 20
WRITES = f"""
import asyncio, sys
from agent_kernel.core.messages import user
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.sessions.store.sqlite import SqliteStore
async def main():
    for name, durable in (("default.db", False), ("durable.db", True)):
        store = SqliteStore(sys.argv[1] + "/" + name, durable=durable)
        await store.create(SessionKey("local", "s"))
        for n in range({TURNS}):
            await store.add_turn(Turn(f"t{{n}}", SessionKey("local", "s")), [user("x" * 400), user("y" * 400)])
        await store.aclose()
asyncio.run(main())
"""


def test_a_durable_store_waits_for_the_disk_once_a_turn_and_the_default_never(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("no strace on this machine; run: apt-get install strace")
    log = tmp_path / "calls"
    watch = ["strace", "-f", "-y", "-e", "trace=fsync,fdatasync", "-o", str(log)]
    traced = subprocess.run(
        [*watch, sys.executable, "-c", WRITES, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if "ptrace" in traced.stderr:
        pytest.skip(f"strace may not trace here: {traced.stderr.strip()}")
    assert traced.returncode == 0, traced.stderr
    synced = re.findall(r"sync\(\d+<[^>]*/(\w+)\.db-wal>", log.read_text())
    # The journal is also waited for when it is copied into the database: when the file is made, and at the close.
    assert TURNS <= synced.count("durable") <= TURNS + 8
    assert synced.count("default") <= 4


@pytest.mark.parametrize(("durable", "level"), [(False, 1), (True, 2)])
async def test_durable_is_full_synchronous(path: Path, durable: bool, level: int) -> None:
    store = SqliteStore(path, durable=durable)
    await store.create(KEY)
    assert await store._database.read(lambda db: db.execute("PRAGMA synchronous").fetchone()) == (level,)
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]
    await store.aclose()


async def test_durable_is_a_setting(tmp_path: Path) -> None:
    settings = Settings.from_env({"AGENT_KERNEL_DURABLE": "on"}, data_dir=str(tmp_path))
    store = server_runtime.build_by_name(server_runtime.STORES, settings.store, settings)
    await store.create(KEY)
    assert await store._database.read(lambda db: db.execute("PRAGMA synchronous").fetchone()) == (2,)
    await store.aclose()
    assert not Settings.from_env({}).durable


# ----------------------------------------------------------------------------- connections that cannot undo or close


class Stubborn(StoreConnection):
    """A connection that refuses the operations in ``refused``."""

    refused: ClassVar[set[str]] = set()

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        if sql in self.refused:
            raise sqlite3.OperationalError(f"{sql} is refused")
        return super().execute(sql, *arguments)  # type: ignore[arg-type]  # passed on as it is

    def close(self) -> None:
        if "close" in self.refused:
            raise sqlite3.OperationalError("close is refused")
        super().close()


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    monkeypatch.setattr("agent_kernel.sessions.store.database.StoreConnection", Stubborn)
    monkeypatch.setattr(Stubborn, "refused", set())
    return Stubborn.refused


async def test_a_table_that_is_gone_fails_the_call_and_leaves_no_transaction(
    file_store: SqliteStore, path: Path
) -> None:
    await file_store.add_turn(Turn("t1", KEY), [user("u1")])
    for table, call in (("items", file_store.pop), ("turns", file_store.clear)):
        with sqlite3.connect(path) as other:
            other.execute(f"ALTER TABLE {table} RENAME TO away")
        other.close()
        with pytest.raises(StoreError, match=table):
            await call(KEY)
        assert writable_at_once(path)
        with sqlite3.connect(path) as other:
            other.execute(f"ALTER TABLE away RENAME TO {table}")
        other.close()
    assert len(await file_store.latest(KEY)) == 1


@pytest.mark.parametrize("failing", [{"COMMIT"}, {"COMMIT", "ROLLBACK"}], ids=["commit", "commit and undoing it"])
async def test_a_write_that_can_not_end_leaves_nothing_and_the_next_one_works(
    file_store: SqliteStore, path: Path, refused: set[str], failing: set[str]
) -> None:
    talk = await Talk.begin(file_store, Owner.here())
    refused |= failing
    with pytest.raises(StoreError):
        await file_store.append(talk.turn, talk.owner, [user("lost")], 0)
    assert writable_at_once(path)
    refused.clear()
    await talk.say(user("kept"))
    assert await talk.texts() == ["kept"]


async def test_a_connection_that_can_not_be_closed_is_kept_until_it_can(
    file_store: SqliteStore, path: Path, refused: set[str]
) -> None:
    talk = await Talk.begin(file_store, Owner.here())
    refused |= {"COMMIT", "ROLLBACK", "close"}
    with pytest.raises(StoreError):
        await file_store.append(talk.turn, talk.owner, [user("lost")], 0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        writable_at_once(path)
    refused.clear()
    await file_store.aclose()
    assert writable_at_once(path)
    again = SqliteStore(path)
    assert await again.latest(KEY) == []
    await again.aclose()


async def test_a_closed_store_stays_closed(file_store: SqliteStore) -> None:
    await file_store.create(KEY)
    await file_store.aclose()
    await file_store.aclose()
    for call in (file_store.append(Turn("t", KEY), Owner.here(), [], 0), file_store.info(SessionKey("local", "x"))):
        with pytest.raises(StoreError, match="closed"):
            await call

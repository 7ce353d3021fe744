"""Tests files in our stores: after a restart, within a quota, with lost bytes, in an expired session, and in private
sessions.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_kernel.core.errors import QuotaExceeded
from agent_kernel.core.seams.session_store import FileStore
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.contract_tests.files import LARGE, bytes_of, file
from agent_kernel.sessions.export.import_export import copy_session
from agent_kernel.sessions.retention.limited_store import limit_store
from agent_kernel.sessions.retention.limits import RetentionLimits
from agent_kernel.sessions.store.json_files import FilesStore
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.private_store import PrivateStore, private_id
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.sessions.tables.quota import Quota
from tests.sessions.talk import KEY, Clock


def blob_paths(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and len(path.name) >= 64]


@pytest.mark.parametrize("kind", ["sqlite", "files"])
async def test_files_are_there_after_a_restart(tmp_path: Path, kind: str) -> None:
    def opened() -> FileStore:
        return SqliteStore(tmp_path / "s.db") if kind == "sqlite" else FilesStore(tmp_path / "files")

    first = opened()
    await first.create(KEY)
    await first.add_files(KEY, [(file("file-1", LARGE), LARGE), (file("file-2"), b"hello")])
    kept = await first.files(KEY)
    await first.aclose()
    second = opened()
    assert await second.files(KEY) == kept
    assert [await bytes_of(second, KEY, one.id) for one in kept] == [LARGE, b"hello"]
    await second.aclose()


async def test_large_bytes_are_one_file_on_the_disk_until_nobody_names_them(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    other = SessionKey("local", "other")
    for key in (KEY, other):
        await store.create(key)
        await store.add_files(key, [(file("file-1", LARGE), LARGE)])
    assert len(blob_paths(tmp_path)) == 1
    await store.delete(KEY)
    assert len(blob_paths(tmp_path)) == 1
    assert await store.verify() == []
    await store.remove_file(other, "file-1")
    assert blob_paths(tmp_path) == []
    assert await store.verify() == []
    await store.aclose()


@pytest.mark.parametrize("bytes", [100_000, 150_000])
async def test_a_file_that_does_not_fit_the_quota_is_refused(bytes: int) -> None:
    store = MemoryStore(quota=Quota(bytes=bytes))
    await store.create(KEY)
    if bytes > len(LARGE):
        await store.add_files(KEY, [(file("file-1", LARGE), LARGE)])
    with pytest.raises(QuotaExceeded):
        await store.add_files(KEY, [(file("file-2", LARGE), LARGE)])
    await store.add_files(KEY, [(file("file-3"), b"hello")])
    await store.aclose()


@pytest.mark.parametrize("damage", ["removed", "cut", "changed"])
async def test_lost_bytes_are_found_and_the_file_says_so_afterwards(tmp_path: Path, damage: str) -> None:
    store = SqliteStore(tmp_path / "s.db")
    await store.create(KEY)
    await store.add_files(KEY, [(file("file-1", LARGE), LARGE)])
    (path,) = blob_paths(tmp_path)
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(LARGE[:-1] + b"?" * (damage == "changed"))
    if damage != "changed":
        assert await store.file_body(KEY, "file-1") is None
    assert [(fault.kind, fault.mended) for fault in await store.verify()] == [("file", "")]
    assert [fault.kind for fault in await store.repair()] == ["file"]
    (lost,) = await store.files(KEY)
    assert (lost.id, lost.name, lost.size, lost.hash, lost.error) == ("file-1", "a.txt", 0, "", "gone")
    assert await store.verify() == []
    await store.aclose()


async def test_a_copy_of_a_session_has_its_files() -> None:
    store = MemoryStore()
    await store.create(KEY)
    await store.add_files(KEY, [(file("file-1", LARGE), LARGE)])
    copy = SessionKey("local", "copy")
    await copy_session(store, KEY, copy)
    assert await store.files(copy) == await store.files(KEY)
    assert await bytes_of(store, copy, "file-1") == LARGE
    await store.aclose()


async def test_files_of_an_expired_session_are_gone_for_every_reader(clock: Clock) -> None:
    store: FileStore = limit_store(MemoryStore(clock=clock), RetentionLimits(ttl=60), clock=clock)  # type: ignore[assignment]
    await store.create(KEY)
    await store.add_files(KEY, [(file("file-1"), b"hello")])
    assert len(await store.all_files("local")) == 1
    clock.now += 61
    assert await store.files(KEY) == []
    assert await store.file(KEY, "file-1") is None
    assert await store.file_body(KEY, "file-1") is None
    assert await store.sessions_of_file("local", "file-1") == []
    assert await store.all_files("local") == []
    await store.aclose()


async def test_a_private_session_keeps_its_files_in_memory(tmp_path: Path) -> None:
    store: FileStore = PrivateStore(SqliteStore(tmp_path / "s.db"))
    key = SessionKey("local", private_id())
    await store.create(key)
    await store.add_files(key, [(file("file-1", LARGE), LARGE)])
    assert await store.sessions_of_file("local", "file-1") == [key]
    assert await bytes_of(store, key, "file-1") == LARGE
    assert await store.all_files("local") == []
    assert blob_paths(tmp_path) == []
    await store.aclose()

"""Tests of files. They are separate from the other contract tests, since a store need not support files.

The fixtures ``store`` and ``clock`` are those of the contract of a SessionStore.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from agent_kernel.core.errors import Conflict, InvalidRequest, SessionNotFound
from agent_kernel.core.files import File
from agent_kernel.core.seams.session_store import FileStore
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.contract_tests.fixtures import KEY, Clock, assert_raises, read_session, snapshot, whole_turns

pytestmark = pytest.mark.asyncio
OTHER = SessionKey(KEY.namespace, "other")
STRANGER = SessionKey("stranger", KEY.id)
LARGE = bytes(range(256)) * 400


def file(id: str, data: bytes = b"hello", created: float = 1_700_000_000.5, **facts: object) -> File:
    default_file = File(id, "a.txt", "text/plain", len(data), created, "txt", hash=hashlib.sha256(data).hexdigest())
    return replace(default_file, **facts)  # type: ignore[arg-type]  # whatever a test says of a file


def absent(id: str) -> File:
    return File(id, "b.txt", "text/plain", 0, 1.0, error="not_produced", message="not produced")


async def bytes_of(store: FileStore, key: SessionKey, id: str) -> bytes | None:
    body = await store.file_body(key, id)
    return body.read_bytes() if isinstance(body, Path) else body


@pytest.mark.parametrize("data", [b"", b"small", LARGE])
async def test_a_file_is_kept_with_its_session_and_read_again(store: FileStore, data: bytes) -> None:
    before = await store.create(KEY)
    one = file("file-1", data, format="csv", purpose="user_data", tool="python", round=3, turn=7, preview="é")
    await store.add_files(KEY, [(one, data)])
    assert await store.file(KEY, "file-1") == one
    assert await store.files(KEY) == [one]
    assert await bytes_of(store, KEY, "file-1") == data
    assert (await read_session(store)).revision > before.revision


@pytest.mark.parametrize("data", [b"small", LARGE])
async def test_a_file_that_is_written_already_is_taken_by_its_path(
    store: FileStore, data: bytes, tmp_path: Path
) -> None:
    await store.create(KEY)
    written = tmp_path / "written"
    written.write_bytes(data)
    await store.add_files(KEY, [(file("file-1", data), written)])
    await store.add_files(KEY, [(file("file-2", data), written)])
    written.unlink()
    assert await bytes_of(store, KEY, "file-1") == data
    assert await store.remove_file(KEY, "file-1")
    assert await bytes_of(store, KEY, "file-2") == data


async def test_files_are_listed_as_they_came(store: FileStore) -> None:
    await store.create(KEY)
    await store.add_files(KEY, [(file("file-b", created=5.0), b"hello"), (file("file-a", created=5.0), b"hello")])
    await store.add_files(KEY, [(file("file-c", created=4.0), b"hello")])
    assert [file.id for file in await store.files(KEY)] == ["file-c", "file-b", "file-a"]


async def test_a_file_without_bytes_says_why(store: FileStore) -> None:
    await store.create(KEY)
    await store.add_files(KEY, [(absent("file-1"), None)])
    assert await store.files(KEY) == [absent("file-1")]
    assert await store.file_body(KEY, "file-1") is None


async def test_nothing_of_one_session_is_seen_from_another(store: FileStore) -> None:
    for key in (KEY, OTHER, STRANGER):
        await store.create(key)
    await store.add_files(KEY, [(file("file-1"), b"hello")])
    for key in (OTHER, STRANGER, SessionKey("local", "nowhere")):
        assert await store.file(key, "file-1") is None
        assert await store.files(key) == []
        assert await store.file_body(key, "file-1") is None
        assert not await store.remove_file(key, "file-1")
    assert await store.sessions_of_file("stranger", "file-1") == []
    assert await store.all_files("stranger") == []
    assert await bytes_of(store, KEY, "file-1") == b"hello"


async def test_several_sessions_may_have_a_file_and_each_loses_its_own(store: FileStore) -> None:
    for number, key in enumerate((KEY, OTHER)):
        await store.create(key)
        await store.add_files(key, [(file("file-1", LARGE, created=float(number)), LARGE)])
    assert await store.sessions_of_file(KEY.namespace, "file-1") == [KEY, OTHER]
    assert [key for key, _ in await store.all_files(KEY.namespace)] == [OTHER, KEY]
    assert [key for key, _ in await store.all_files(KEY.namespace, sessions=[KEY.id])] == [KEY]
    assert await store.delete(KEY)
    assert await store.file_body(KEY, "file-1") is None
    assert await bytes_of(store, OTHER, "file-1") == LARGE
    assert await store.remove_file(OTHER, "file-1")
    assert not await store.remove_file(OTHER, "file-1")


async def test_what_can_not_be_kept_changes_nothing(store: FileStore) -> None:
    await assert_raises(SessionNotFound, store.add_files(KEY, [(file("file-1"), b"hello")]))
    await store.create(KEY)
    await assert_raises(InvalidRequest, store.add_files(KEY, [(file("file-1"), b"hello"), (file("file-2"), b"hellO")]))
    await assert_raises(InvalidRequest, store.add_files(KEY, [(file("file-1"), None)]))
    await assert_raises(InvalidRequest, store.add_files(KEY, [(file("file-1", name="\ud800"), b"hello")]))
    assert await store.files(KEY) == []
    await store.add_files(KEY, [(file("file-1"), b"hello")])
    await assert_raises(Conflict, store.add_files(KEY, [(file("file-2"), b"hello"), (file("file-1"), b"hello")]))
    assert [file.id for file in await store.files(KEY)] == ["file-1"]


async def test_a_session_that_is_cleared_has_no_files(store: FileStore) -> None:
    await store.create(KEY)
    await store.add_files(KEY, [(file("file-1"), b"hello")])
    await store.clear(KEY)
    assert await store.files(KEY) == []


async def test_a_fork_has_the_files_of_its_turns(store: FileStore, clock: Clock) -> None:
    await whole_turns(store, 2)
    uploaded = file("file-0", purpose="user_data", turn=9, created=0.0)
    files = [(file(f"file-{turn + 1}", LARGE, turn=turn, created=turn + 1.0), LARGE) for turn in range(2)]
    await store.add_files(KEY, [(uploaded, b"hello"), *files])
    await store.fork(KEY, OTHER, 1)
    assert [file_.id for file_ in await store.files(OTHER)] == ["file-1"]
    await store.fork(KEY, SessionKey("local", "all"))
    assert [file.id for file in await store.files(SessionKey("local", "all"))] == ["file-0", "file-1", "file-2"]
    await store.fork(KEY, STRANGER)
    await store.delete(KEY)
    assert await bytes_of(store, OTHER, "file-1") == LARGE
    assert await bytes_of(store, STRANGER, "file-2") == LARGE


async def test_a_whole_session_has_its_files(store: FileStore) -> None:
    await whole_turns(store, 1)
    await store.add_files(KEY, [(file("file-1", LARGE), LARGE), (absent("file-2"), None)])
    whole = await snapshot(store)
    assert {file.id for file in whole.files} == {"file-1", "file-2"}
    copy = replace(whole, session=replace(whole.session, key=OTHER))
    await assert_raises(InvalidRequest, store.restore(copy, {}))
    await store.restore(copy, {file("file-1", LARGE).hash: LARGE})
    assert await store.files(OTHER) == await store.files(KEY)
    assert await bytes_of(store, OTHER, "file-1") == LARGE

"""Tests sessions as readable documents: names, complete files, one process, damage, restarts."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.errors import SessionBusy, StoreCorrupt, StoreError, StoreFull
from agent_kernel.core.messages import user
from agent_kernel.core.session import MAIN, Owner, SessionKey, SessionQuery, SessionUpdate, Summary, Turn
from agent_kernel.sessions.contract_tests.fixtures import whole_turns
from agent_kernel.sessions.store import json_document, schema_migration
from agent_kernel.sessions.store.json_files import FilesStore
from tests.narrowing import instance_of, not_none
from tests.sessions.file import ROOT
from tests.sessions.strategies import ids
from tests.sessions.talk import KEY, PNG, calls, result


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.fixture
async def kept(directory: Path) -> AsyncIterator[FilesStore]:
    store = FilesStore(directory)
    yield store
    await store.aclose()


def document(directory: Path, key: SessionKey = KEY) -> Path:
    return directory / "sessions" / json_document.file_name(key)


def names(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


async def reopen(store: FilesStore) -> FilesStore:
    await store.aclose()
    return FilesStore(store.directory)


async def test_a_session_is_a_document_that_people_can_read(kept: FilesStore, directory: Path) -> None:
    await kept.create(KEY, "Über Züge")
    await kept.add_turn(Turn("t1", KEY), [user("Wie schnell?"), calls("c"), result("c", "300 km/h")])
    path = document(directory)
    assert path.name.startswith("s-")
    assert path.stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    text = path.read_text()
    assert "Wie schnell?" in text
    body = json.loads(text)
    assert (body["namespace"], body["id"], body["sessions"]["title"]) == ("local", "s", "Über Züge")
    assert [item["body"]["role"] for item in body["items"]] == ["user", "assistant", "tool"]
    assert body["items"][2]["body"]["content"] == "300 km/h"
    assert [turn["state"] for turn in body["turns"]] == ["committed"]


async def test_everything_is_there_after_a_restart(kept: FilesStore, owner: Owner) -> None:
    await whole_turns(kept, 2, PNG)
    await kept.branch(KEY, before="t2", name="edit")
    await kept.add_turn(Turn("t3", KEY, cell="c", record={"a": [1, "é", None]}), [user("a\0b \ud800 🙂")])
    await kept.describe(KEY, SessionUpdate(tags=("x",), metadata={"k": 1.5}, context={"plan": "\ud800"}))
    await kept.claim_summary(KEY, owner)
    await kept.add_summary(Summary(KEY, 5, "so far"), owner)
    await kept.remember(KEY, "scope", {5: "hash"})
    await kept.bind("local", "/r", "a.ipynb", "s")

    async def told(store: FilesStore) -> list[Any]:
        found: list[Any] = [await store.info(KEY), await store.everything(KEY), await store.branches(KEY)]
        found += [await store.latest(KEY, branch=name) for name in (MAIN, "edit")]
        found += [await store.blob(KEY, PNG.hash), await store.siblings(KEY, "t3"), await store.of_cell(KEY, "c")]
        found += [[(s.last, s.text) for s in await store.summaries(KEY)], await store.bound("local", "/r", "a.ipynb")]
        found += [await store.match("local", "scope", ["hash"]), await store.stats()]
        found += [len(await store.search("local", SessionQuery("u1")))]
        return [*found]

    before = await told(kept)
    before[-2] = {**before[-2], "file_bytes": 0}
    again = await reopen(kept)
    after = await told(again)
    after[-2] = {**after[-2], "file_bytes": 0}
    assert after == before
    assert after[-1] == 1
    await again.switch(KEY, MAIN)
    [item] = await again.add_turn(Turn("t4", KEY), [user("on")])
    assert item.seq == 6
    await again.aclose()


async def test_nothing_is_written_when_nothing_changed(kept: FilesStore, directory: Path) -> None:
    await whole_turns(kept, 1)
    before = {name: (directory / name).stat().st_mtime_ns for name in names(directory)}
    await kept.latest(KEY)
    await kept.create(KEY)
    while await kept.fold():
        pass
    assert {name: (directory / name).stat().st_mtime_ns for name in names(directory)} == before
    data = document(directory).read_bytes()
    again = await reopen(kept)
    await again.rename(KEY, "x")
    await again.rename(KEY, "")
    changed = json.loads(document(directory).read_bytes())
    for name in ("items", "turns", "branches"):
        assert changed[name] == json.loads(data)[name]
    await again.aclose()


@pytest.mark.parametrize("part", [".", "sessions"], ids=["directory", "documents"])
async def test_a_directory_that_is_gone_is_not_made_anew(kept: FilesStore, directory: Path, part: str) -> None:
    """What was read came from memory, as if all were well, and writes failed without a word of why."""
    await kept.create(KEY, "kept")
    place = directory / part
    moved = directory.with_name("moved")
    place.rename(moved)
    for call in (kept.info(KEY), kept.list("local"), kept.create(KEY), kept.rename(KEY, "x"), kept.delete(KEY)):
        with pytest.raises(StoreError, match="moved away or deleted") as refused:
            await call
        assert "Nothing was written" in refused.value.hint
        assert not place.exists()
    moved.rename(place)
    await kept.rename(KEY, "back")
    assert "back" in document(directory).read_text()


async def test_a_directory_put_in_the_place_of_ours_is_the_one_used(kept: FilesStore, directory: Path) -> None:
    await kept.create(KEY, "old")
    backup = FilesStore(directory.with_name("backup"))
    await backup.create(KEY, "of the backup")
    await backup.aclose()
    directory.rename(directory.with_name("moved"))
    directory.with_name("backup").rename(directory)
    assert not_none(await kept.info(KEY)).title == "of the backup"
    await kept.rename(KEY, "new")
    assert "new" in document(directory).read_text()
    assert "old" in document(directory.with_name("moved")).read_text()
    second = FilesStore(directory)
    with pytest.raises(StoreError, match="is in use by"):
        await second.info(KEY)
    await second.aclose()


async def test_what_is_deleted_leaves_no_file(kept: FilesStore, directory: Path) -> None:
    await kept.add_turn(Turn("t1", KEY), [user("look", [PNG])])
    await kept.bind("local", "/r", "a", "s")
    assert len([name for name in names(directory) if name.startswith("blobs/")]) == 1
    await kept.delete(KEY)
    assert names(directory) == ["bindings.json", "holder.json", "lock"]
    assert json.loads((directory / "bindings.json").read_bytes()) == {"bindings": []}


async def test_a_lease_survives_a_restart_and_recovery_works_on_it(directory: Path) -> None:
    code = f"""
import asyncio, os
from agent_kernel.sessions.store.json_files import FilesStore
from tests.sessions.talk import *
from agent_kernel.core.session import Owner
from agent_kernel.core.messages import user
async def main():
    store = FilesStore({str(directory)!r})
    talk = await Talk.begin(store, Owner.here())
    await talk.say(user("add"), calls("c"))
    print("ready", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    child = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    waiting = FilesStore(directory)
    with pytest.raises(StoreError, match=f"in use by process {child.pid} on"):
        await waiting.info(KEY)
    child.kill()
    child.wait()
    child.stdout.close()
    with pytest.raises(SessionBusy):
        await waiting.open_turn(Turn("t2", KEY), Owner.here())
    [closed] = await waiting.recover()
    assert (closed.id, closed.state) == ("t1", "interrupted")
    assert len(await waiting.latest(KEY)) == 3
    await waiting.aclose()


async def test_a_second_store_in_the_same_process_waits_for_the_first_to_close(kept: FilesStore) -> None:
    await kept.create(KEY)
    other = FilesStore(kept.directory)
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"):
        await other.info(KEY)
    await kept.aclose()
    assert await other.info(KEY) is not None
    await other.aclose()


# ---------------------------------------------------------------------------------------------------------- names


@given(ids, ids)
def test_a_file_name_fits_every_disk(namespace: str, id: str) -> None:
    name = json_document.file_name(SessionKey(namespace, id))
    assert len(name.encode()) <= 255
    assert name == name.lower()
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
    assert name.removesuffix(".json").count(".") == 0


@pytest.mark.parametrize(
    "id", ["../../etc/passwd", "con", "a/b", "a\\b", ".", "..", "x" * 512, "日本語", "%00", "A", "a"]
)
async def test_any_id_has_a_file_of_its_own(kept: FilesStore, directory: Path, id: str) -> None:
    keys = [SessionKey("local", id), SessionKey("local", id + "2"[: 512 - len(id)]), SessionKey("other", id)]
    for key in dict.fromkeys(keys):
        await kept.create(key, key.namespace + key.id)
    assert len(list((directory / "sessions").iterdir())) == len(set(keys))
    again = await reopen(kept)
    for key in keys:
        assert not_none(await again.info(key)).title == key.namespace + key.id
    await again.aclose()


@given(st.lists(st.tuples(ids, ids), min_size=2, max_size=10, unique=True))
def test_no_two_sessions_share_a_name(keys: list[tuple[str, str]]) -> None:
    assert len({json_document.file_name(SessionKey(*key)) for key in keys}) == len(keys)


def test_ids_that_differ_in_case_or_in_where_the_namespace_ends_have_names_of_their_own() -> None:
    keys = [("a", "b:c"), ("a:b", "c"), ("a", "B:c"), ("A", "b:c"), ("1:a", "b"), ("1", "a:b")]
    assert len({json_document.file_name(SessionKey(*key)) for key in keys}) == len(keys)


# --------------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"not valid json {{{",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'"text"',
        b"null",
        b"NaN",
        "truncated",
        "rows",
    ],
)
async def test_a_file_that_is_not_ours_or_damaged_hides_one_session_and_is_never_written_over(
    kept: FilesStore, directory: Path, damage: bytes | str, caplog: pytest.LogCaptureFixture
) -> None:
    other = SessionKey("local", "other")
    await whole_turns(kept, 1)
    await kept.add_turn(Turn("t1", other), [user("fine")])
    path = document(directory)
    good = path.read_bytes()
    if damage == "rows":
        damage = good.replace(b'"ordinal": 1', b'"ordinal": null')
    bad = instance_of(bytes, good[: len(good) // 2] if damage == "truncated" else damage)
    await kept.aclose()
    path.write_bytes(bad)
    again = FilesStore(directory)
    assert await again.info(KEY) is None
    assert [session.key for session in await again.list("local")] == [other]
    assert path.name in caplog.text
    for write in (again.create(KEY), again.add_turn(Turn("t9", KEY), [user("no")]), again.fork(other, KEY)):
        with pytest.raises(StoreCorrupt, match=path.name):
            await write
    await again.add_turn(Turn("t2", other), [user("still fine")])
    assert path.read_bytes() == bad
    path.unlink()
    await again.create(KEY, "a new one")
    assert json.loads(path.read_bytes())["sessions"]["title"] == "a new one"
    await again.aclose()


async def test_a_copied_document_is_left_alone(kept: FilesStore, directory: Path) -> None:
    await whole_turns(kept, 1)
    await kept.aclose()
    shutil.copy(document(directory), directory / "sessions" / "my copy.json")
    (directory / "sessions" / "notes.txt").write_text("not a session")
    again = FilesStore(directory)
    assert len(await again.list("local")) == 1
    assert len(await again.latest(KEY)) == 2
    await again.aclose()
    assert (directory / "sessions" / "my copy.json").exists()


async def test_damaged_bindings_bind_nothing_and_are_never_written_over(kept: FilesStore, directory: Path) -> None:
    await kept.create(KEY)
    await kept.bind("local", "/r", "a", "s")
    await kept.aclose()
    (directory / "bindings.json").write_bytes(b"{")
    again = FilesStore(directory)
    assert await again.bound("local", "/r", "a") is None
    with pytest.raises(StoreCorrupt):
        await again.bind("local", "/r", "b", "s")
    await again.rename(KEY, "fine")
    assert (directory / "bindings.json").read_bytes() == b"{"
    await again.aclose()


async def test_a_document_of_a_newer_version_is_left_alone(kept: FilesStore, directory: Path) -> None:
    await kept.create(KEY)
    await kept.aclose()
    path = document(directory)
    path.write_bytes(path.read_bytes().replace(b'"version": ', b'"version": 9'))
    again = FilesStore(directory)
    assert await again.info(KEY) is None
    with pytest.raises(StoreCorrupt):
        await again.create(KEY)
    await again.aclose()


async def test_a_document_of_an_older_version_is_migrated(kept: FilesStore, directory: Path) -> None:
    await whole_turns(kept, 2)
    await kept.aclose()
    path = document(directory)
    body = json.loads(path.read_bytes())
    for table in ("branches", "segments", "summaries", "openings"):
        body.pop(table, None)
    for row in (*body["turns"], *body["items"]):
        row.pop("segment")
        row.pop("since", None)
    old = {name: body["sessions"][name] for name in ("title", "created", "updated", "head", "revision", "turns")}
    path.write_bytes(json_document.to_bytes({**body, "version": 1, "sessions": old}))
    again = FilesStore(directory)
    assert [turn.since for turn in await again.turns(KEY)] == [0, 2]
    assert [branch.name for branch in await again.branches(KEY)] == [MAIN]
    await again.branch(KEY, before="t2")
    assert [item.message.text for item in await again.latest(KEY)] == ["u1", "a1"]
    await again.aclose()
    assert json.loads(path.read_bytes())["version"] == len(schema_migration.migration_scripts())


# ----------------------------------------------------------------------------------------------- a disk that fails


@pytest.mark.parametrize("step", ["fsync", "replace"])
async def test_a_write_that_fails_changes_nothing(
    kept: FilesStore, directory: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await whole_turns(kept, 1)
    before, data = names(directory), document(directory).read_bytes()

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(StoreFull, match=directory.name):
            await kept.add_turn(Turn("t2", KEY), [user("lost")])
    assert names(directory) == before
    assert document(directory).read_bytes() == data
    assert len(await kept.latest(KEY)) == 2
    await kept.add_turn(Turn("t2", KEY), [user("kept")])
    assert len(json.loads(document(directory).read_bytes())["items"]) == 3


async def test_of_several_files_none_stays_as_a_failed_write_left_it(
    kept: FilesStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleting a bound session changes two files; the second cannot be changed."""
    await whole_turns(kept, 1)
    await kept.bind("local", "/r", "a", "s")

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.name.endswith(".json"):
            raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        with pytest.raises(StoreError):
            await kept.delete(KEY)
    assert await kept.bound("local", "/r", "a") == "s"
    await kept.create(SessionKey("local", "other"))
    again = await reopen(kept)
    assert await again.bound("local", "/r", "a") == "s"
    assert len(await again.latest(KEY)) == 2
    await again.aclose()


async def test_a_process_killed_while_it_writes_leaves_whole_documents(directory: Path) -> None:
    code = f"""
import asyncio
from agent_kernel.sessions.store.json_files import FilesStore
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.core.messages import user
async def main():
    store = FilesStore({str(directory)!r})
    n = 0
    while True:
        n += 1
        await store.add_turn(Turn(f"t{{n}}", SessionKey("local", "s")), [user("x" * 3000), user(str(n))])
        print(n, flush=True)
asyncio.run(main())
"""
    told = 0
    for _ in range(3):
        shutil.rmtree(directory, ignore_errors=True)
        child = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(5):
            child.stdout.readline()
        child.kill()
        told = max([5, *(int(line) for line in child.stdout.read().split())])
        child.wait()
        child.stdout.close()
        store = FilesStore(directory)
        items = await store.latest(KEY)
        assert len(items) >= 2 * told
        assert len(items) % 2 == 0
        await store.aclose()

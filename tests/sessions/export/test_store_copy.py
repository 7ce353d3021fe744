"""Tests that sessions are copied between stores without loss, and that a second copy transfers only what is missing."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from agent_kernel.core.errors import StoreError
from agent_kernel.core.files import INLINE_BYTES
from agent_kernel.core.messages import assistant, user
from agent_kernel.core.seams.session_store import PersistentStore
from agent_kernel.core.session import UNLISTED, Owner, Session, SessionKey, Turn
from agent_kernel.core.session_tree import SessionSnapshot
from agent_kernel.sessions.contract_tests.files import bytes_of, file
from agent_kernel.sessions.contract_tests.fixtures import KEY, PNG, Talk, snapshot
from agent_kernel.sessions.contract_tests.snapshots import add_branches
from agent_kernel.sessions.export.store_copy import copy_bindings, copy_stored_session, copyable_sessions
from agent_kernel.sessions.store.shared_store import SharedStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.sessions.store.store_url import open_store
from tests.sessions.log.memory_log import MemoryLog
from tests.sessions.talk import Clock

LARGE = bytes(INLINE_BYTES + 1)
STORES = ("sqlite", "files", "memory", "shared")


def open_named_store(name: str, place: Path, clock: Clock) -> PersistentStore:
    if name == "shared":
        return SharedStore(MemoryLog(clock))
    return open_store("memory:" if name == "memory" else f"{name}:{place}")


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "source.db")
    yield store
    await store.aclose()


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "target.db")
    yield store
    await store.aclose()


@pytest.mark.parametrize("there", STORES)
@pytest.mark.parametrize("here", STORES)
async def test_a_copy_has_every_branch_medium_file_and_number(
    here: str, there: str, tmp_path: Path, owner: Owner, clock: Clock
) -> None:
    async with AsyncExitStack() as closing:
        one, other = open_named_store(here, tmp_path / "a", clock), open_named_store(there, tmp_path / "b", clock)
        closing.push_async_callback(one.aclose)
        closing.push_async_callback(other.aclose)
        await add_branches(one, owner)
        await one.add_files(KEY, [(file("small"), b"hello"), (file("large", LARGE), LARGE)])  # type: ignore[attr-defined]  # these stores have files
        copy = await copy_stored_session(one, other, KEY)
        assert (copy.state, copy.items) == ("copied", 8)
        whole, copied = await snapshot(one), await snapshot(other)
        assert [replace(it, id=0) for it in copied.summaries] == [replace(it, id=0) for it in whole.summaries]
        assert replace(copied, summaries=()) == replace(whole, summaries=())
        assert await other.blob(KEY, PNG.hash) == PNG.data
        assert await bytes_of(other, KEY, "large") == LARGE  # type: ignore[arg-type]  # these stores have files
        assert (await copy_stored_session(one, other, KEY)).state == "equal"
        assert (await copy_stored_session(other, one, KEY)).state == "equal"
        assert await other.verify() == []


async def test_a_conversation_that_went_on_is_copied_again_and_one_that_went_on_there_is_not(
    source: SqliteStore, target: SqliteStore, owner: Owner
) -> None:
    await add_branches(source, owner)
    await copy_stored_session(source, target, KEY)
    await source.add_turn(Turn("t9", KEY), [user("more"), assistant("of it")])
    assert (await copy_stored_session(source, target, KEY)).state == "continued"
    assert (await target.latest(KEY, 1))[0].message.text == "of it"

    await target.add_turn(Turn("t10", KEY), [user("elsewhere"), assistant("too")])
    assert (await copy_stored_session(source, target, KEY)).state == "differs"
    assert (await target.latest(KEY, 1))[0].message.text == "too"
    assert (await copy_stored_session(source, target, KEY, replace=True)).state == "copied"
    assert (await target.latest(KEY, 1))[0].message.text == "of it"


async def test_a_title_that_was_changed_in_the_target_is_kept(
    source: SqliteStore, target: SqliteStore, owner: Owner
) -> None:
    await add_branches(source, owner)
    await copy_stored_session(source, target, KEY)
    await target.rename(KEY, "mine")
    assert (await copy_stored_session(source, target, KEY)).state == "differs"
    assert (await snapshot(target)).session.title == "mine"


async def test_sessions_of_all_namespaces_are_copied_but_those_with_a_running_turn(
    source: SqliteStore, target: SqliteStore, owner: Owner
) -> None:
    keys = [SessionKey("ann", "a"), SessionKey("bob", f"{UNLISTED}b"), SessionKey("ann", "c")]
    for key in keys:
        await source.create(key)
    await Talk.begin(source, owner, "running", namespace="ann")
    assert await copyable_sessions(source) == (keys, 1)
    assert await copyable_sessions(source, "bob") == (keys[1:2], 0)
    await Talk.begin(target, owner, "a", namespace="ann")
    assert (await copy_stored_session(source, target, keys[0], replace=True)).state == "busy"
    assert (await copy_stored_session(source, target, SessionKey("ann", "deleted"))).state == "gone"


async def test_notebooks_stay_bound_and_those_bound_elsewhere_are_named(
    source: SqliteStore, target: SqliteStore
) -> None:
    for store, session in ((source, "a"), (target, "b")):
        await store.create(SessionKey("ann", session))
        await store.bind("ann", "/root", "both.ipynb", session)
    await source.bind("ann", "/root", "one.ipynb", "a")
    await source.create(SessionKey("ann", "left"))
    await source.bind("ann", "/root", "left.ipynb", "left")
    key = SessionKey("ann", "a")
    await copy_stored_session(source, target, key)
    left_out = await copy_bindings(source, target, [key])
    assert [binding.path for binding in left_out] == ["both.ipynb"]
    assert await target.bound("ann", "/root", "one.ipynb") == "a"
    assert await target.bound("ann", "/root", "both.ipynb") == "b"
    assert await target.bound("ann", "/root", "left.ipynb") is None


class Forgetful(SqliteStore):
    """A store that loses the last item of what it restores."""

    async def restore(self, whole: SessionSnapshot, blobs: Mapping[str, bytes], *, replace: bool = False) -> Session:
        return await super().restore(dataclasses.replace(whole, items=whole.items[:-1]), blobs, replace=replace)


async def test_a_copy_that_lacks_something_is_an_error(source: SqliteStore, tmp_path: Path, owner: Owner) -> None:
    await add_branches(source, owner)
    forgetful = Forgetful(tmp_path / "forgetful.db")
    with pytest.raises(StoreError, match="not equal to the original"):
        await copy_stored_session(source, forgetful, KEY)
    await forgetful.aclose()

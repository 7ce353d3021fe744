"""Tests private sessions: they are in memory, beside the others, and nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.sessions.store.private_store import PrivateStore, is_private, private_id
from agent_kernel.sessions.store.sqlite import SqliteStore

KEPT = SessionKey("ns", "kept")
PRIVATE = SessionKey("ns", private_id())


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    store = PrivateStore(SqliteStore(tmp_path / "sessions.db"))
    for key in (KEPT, PRIVATE):
        await store.create(key)
        await store.add_turn(Turn(f"turn of {key.id}", key), [user(f"said to {key.id}")])
    yield store
    await store.aclose()


async def test_a_private_session_can_be_used_and_is_in_no_file_and_no_list(store: SessionStore, tmp_path: Path) -> None:
    assert is_private(PRIVATE.id)
    [item] = await store.latest(PRIVATE)
    assert item.message.text == f"said to {PRIVATE.id}"
    turn = await store.turn("ns", f"turn of {PRIVATE.id}")
    assert turn is not None
    assert await store.of_turn(turn) == [item]
    assert [session.key for session in await store.list("ns")] == [KEPT]
    assert await store.delete(PRIVATE)
    assert await store.info(PRIVATE) is None
    await store.aclose()
    assert all(PRIVATE.id.encode() not in file.read_bytes() for file in tmp_path.iterdir())


async def test_its_binding_lies_over_the_kept_one_until_it_is_taken_away(store: SessionStore) -> None:
    place = ("ns", "/root", "a.ipynb")
    await store.bind(*place, KEPT.id)
    await store.bind(*place, PRIVATE.id)
    assert await store.bound(*place) == PRIVATE.id
    assert await store.paths("/root", PRIVATE) == ["a.ipynb"]
    assert await store.move("/root", "a.ipynb", "b.ipynb") == 2
    moved = ("ns", "/root", "b.ipynb")
    assert await store.unbind(*moved)
    assert await store.bound(*moved) == KEPT.id
    await store.bind(*moved, PRIVATE.id)
    await store.bind(*moved, KEPT.id)
    assert await store.bound(*moved) == KEPT.id, "a person chose a kept session: the private one is let go"


async def test_nothing_leaves_or_enters_by_a_fork(store: SessionStore) -> None:
    for source, target in ((PRIVATE, SessionKey("ns", "new")), (KEPT, SessionKey("ns", private_id()))):
        with pytest.raises(InvalidRequest):
            await store.fork(source, target)
    inside = SessionKey("ns", private_id())
    assert (await store.fork(PRIVATE, inside)).turns == 1


async def test_turns_of_both_are_opened_closed_and_recovered(store: SessionStore) -> None:
    owner = Owner.here()
    dead = Owner("gone", 2**22 + 1, owner.boot, owner.machine, owner.pid_namespace, "never")
    for key in (KEPT, PRIVATE):
        await store.open_turn(Turn(f"open in {key.id}", key), dead)
    assert {turn.key for turn in await store.recover()} == {KEPT, PRIVATE}

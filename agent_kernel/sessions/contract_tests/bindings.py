"""Tests of bindings: which session a notebook uses."""

from __future__ import annotations

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.contract_tests.fixtures import KEY, assert_raises


async def test_a_binding_is_of_a_namespace_a_root_and_a_path(store: SessionStore) -> None:
    for namespace in ("ann", "bob"):
        for id in ("one", "two"):
            await store.create(SessionKey(namespace, id))
    await store.bind("ann", "/r1", "Untitled.ipynb", "one")
    await store.bind("ann", "/r2", "Untitled.ipynb", "two")
    await store.bind("bob", "/r1", "Untitled.ipynb", "two")
    assert await store.bound("ann", "/r1", "Untitled.ipynb") == "one"
    assert await store.bound("ann", "/r2", "Untitled.ipynb") == "two"
    assert await store.bound("bob", "/r1", "Untitled.ipynb") == "two"
    assert await store.bound("bob", "/r2", "Untitled.ipynb") is None
    await store.bind("ann", "/r1", "Untitled.ipynb", "two")
    assert await store.bound("ann", "/r1", "Untitled.ipynb") == "two"


async def bind_places(store: SessionStore, *places: str) -> None:
    await store.create(KEY)
    for place in places:
        await store.bind("local", "/r", place, "s")


async def test_moving_a_file_moves_its_binding(store: SessionStore) -> None:
    await bind_places(store, "a.ipynb", "a.ipynb.bak")
    assert await store.move("/r", "a.ipynb", "x/b.ipynb") == 1
    assert await store.paths("/r", KEY) == ["a.ipynb.bak", "x/b.ipynb"]
    assert await store.move("/r", "a.ipynb", "c.ipynb") == 0
    assert await store.move("/other", "x/b.ipynb", "c.ipynb") == 0


async def test_moving_a_directory_moves_what_is_inside_and_nothing_beside_it(store: SessionStore) -> None:
    await bind_places(store, "a/b/1", "a/b/c/2", "a/bc/3", "a/b", "a/B/4", "a/%/5", "a/_b/6")
    assert await store.move("/r", "a/b", "z") == 3
    assert await store.paths("/r", KEY) == ["a/%/5", "a/B/4", "a/_b/6", "a/bc/3", "z", "z/1", "z/c/2"]
    assert await store.move("/r", "a/%", "y") == 1


async def test_a_move_replaces_what_was_bound_there(store: SessionStore) -> None:
    await bind_places(store, "old")
    await store.create(SessionKey("local", "t"))
    await store.bind("local", "/r", "new", "t")
    assert await store.move("/r", "old", "new") == 1
    assert await store.bound("local", "/r", "new") == "s"
    assert await store.paths("/r", SessionKey("local", "t")) == []


async def test_a_move_into_a_longer_or_the_same_path_loses_nothing(store: SessionStore) -> None:
    await bind_places(store, "a/1", "a/2")
    assert await store.move("/r", "a", "a/a") == 2
    assert await store.move("/r", "a", "a") == 2
    assert await store.paths("/r", KEY) == ["a/a/1", "a/a/2"]


async def test_a_move_holds_in_every_namespace(store: SessionStore) -> None:
    for namespace in ("ann", "bob"):
        await store.create(SessionKey(namespace, "s"))
        await store.bind(namespace, "/r", "a", "s")
    assert await store.move("/r", "a", "b") == 2
    assert await store.bound("ann", "/r", "b") == await store.bound("bob", "/r", "b") == "s"


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 4097, "\ud800"])
async def test_a_path_that_no_file_has_is_refused(store: SessionStore, path: str) -> None:
    await store.create(KEY)
    await assert_raises(InvalidRequest, store.bind("local", "/r", path, "s"))
    await assert_raises(InvalidRequest, store.move("/r", path, "new"))

"""Tests of sessions: creating them once, finding, listing, clearing and deleting them, and closing the store."""

from __future__ import annotations

import pytest

from agent_kernel.core.errors import InvalidRequest, SessionBusy, SessionNotFound, StoreError
from agent_kernel.core.messages import user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import UNLISTED, Owner, SessionKey, Turn
from agent_kernel.sessions.contract_tests.fixtures import KEY, PNG, Clock, Talk, assert_raises, read_session


async def test_create_makes_a_session_once(store: SessionStore, clock: Clock) -> None:
    session = await store.create(KEY, "first")
    clock.now += 5
    assert await store.create(KEY, "second") == session == await store.info(KEY)
    assert (session.title, session.head, session.turns, session.created) == ("first", 0, 0, clock.now - 5)


async def test_an_unknown_session_is_none_and_has_no_history(store: SessionStore) -> None:
    assert await store.info(KEY) is None
    assert await store.latest(KEY) == []
    assert await store.turns(KEY) == []
    assert await store.blob(KEY, PNG.hash) is None


async def test_what_changes_a_session_must_find_it(store: SessionStore, owner: Owner) -> None:
    await assert_raises(SessionNotFound, store.rename(KEY, "title"))
    await assert_raises(SessionNotFound, store.clear(KEY))
    await assert_raises(SessionNotFound, store.open_turn(Turn("t", KEY), owner))
    await assert_raises(SessionNotFound, store.bind("local", "/root", "a.ipynb", "s"))


@pytest.mark.parametrize("id", ["x", "x" * 512, "日本語 🙂", "a:b/c'); DROP TABLE sessions;--", " ", "%", "a\\b"])
async def test_ids_are_taken_literally(store: SessionStore, owner: Owner, id: str) -> None:
    talk = await Talk.begin(store, owner, id=id, turn=id, namespace=id)
    await talk.say(user("hello"))
    assert await talk.texts() == ["hello"]
    assert [session.key.id for session in await store.list(id)] == [id]


@pytest.mark.parametrize("id", ["", "x" * 513, "a\0b", "a\nb", "\x7f", "\ud800"])
async def test_ids_that_no_store_takes(store: SessionStore, owner: Owner, id: str) -> None:
    with pytest.raises(InvalidRequest):
        SessionKey("local", id)
    with pytest.raises(InvalidRequest):
        SessionKey(id, "s")
    await assert_raises(InvalidRequest, store.list(id))
    await store.create(KEY)
    await assert_raises(InvalidRequest, store.open_turn(Turn(id, KEY), owner))


async def test_the_same_id_in_two_namespaces_is_two_sessions(store: SessionStore, owner: Owner) -> None:
    ann = await Talk.begin(store, owner, namespace="ann")
    bob = await Talk.begin(store, owner, namespace="bob")
    await ann.say(user("from ann", [PNG]))
    await bob.say(user("from bob"))
    assert await ann.texts() == ["from ann"]
    assert await bob.texts() == ["from bob"]
    assert await store.blob(bob.key, PNG.hash) is None
    await bob.close()
    assert await store.delete(bob.key)
    assert await ann.texts() == ["from ann"]
    assert [session.key for session in await store.list("ann")] == [ann.key]


async def test_a_namespace_and_an_id_never_run_together(store: SessionStore, owner: Owner) -> None:
    first = await Talk.begin(store, owner, namespace="a", id="b:c")
    await Talk.begin(store, owner, namespace="a:b", id="c")
    await first.say(user("hello"))
    assert await store.latest(SessionKey("a:b", "c")) == []


async def test_list_gives_the_most_recently_updated_first(store: SessionStore, owner: Owner, clock: Clock) -> None:
    for id in "abc":
        clock.now += 1
        await store.create(SessionKey("local", id))
    clock.now += 1
    await store.rename(SessionKey("local", "a"), "renamed")
    assert [session.key.id for session in await store.list("local")] == ["a", "c", "b"]
    assert [session.key.id for session in await store.list("local", 2)] == ["a", "c"]
    assert len(await store.list("local", None)) == 3
    assert await store.list("local", 0) == []
    await assert_raises(InvalidRequest, store.list("local", -1))


async def test_list_leaves_out_what_was_made_for_a_call_that_named_no_session(store: SessionStore) -> None:
    for id in ("a", f"{UNLISTED}b", "c"):
        await store.create(SessionKey("local", id))
    assert {session.key.id for session in await store.list("local")} == {"a", "c"}
    assert len(await store.list("local", 2)) == 2
    assert await store.info(SessionKey("local", f"{UNLISTED}b")) is not None


async def test_every_change_raises_the_revision_and_a_heartbeat_does_not(store: SessionStore, owner: Owner) -> None:
    seen = [(await store.create(KEY)).revision]

    async def grown() -> bool:
        seen.append((await read_session(store)).revision)
        return seen[-1] > seen[-2]

    turn = await store.open_turn(Turn("t", KEY), owner)
    assert await grown()
    await store.append(turn, owner, [user("hello")], 0)
    assert await grown()
    await store.heartbeat(turn, owner)
    assert not await grown()
    await store.close_turn(turn, owner, "committed")
    assert await grown()
    await store.rename(KEY, "title")
    assert await grown()
    await store.clear(KEY)
    assert await grown()


async def test_clear_keeps_the_session_and_its_bindings(store: SessionStore, talk: Talk) -> None:
    await store.bind("local", "/root", "a.ipynb", "s")
    await talk.say(user("hello", [PNG]))
    await assert_raises(SessionBusy, store.clear(KEY))
    await talk.close()
    await store.clear(KEY)
    session = await read_session(store)
    assert (session.head, session.turns) == (0, 0)
    assert await store.latest(KEY) == []
    assert await store.turns(KEY) == []
    assert await store.blob(KEY, PNG.hash) is None
    assert await store.bound("local", "/root", "a.ipynb") == "s"
    assert (await (await talk.again("t1")).say(user("anew")))[0].seq == 1


async def test_delete_takes_everything_of_the_session_with_it(store: SessionStore, talk: Talk) -> None:
    await store.bind("local", "/root", "a.ipynb", "s")
    await talk.say(user("hello", [PNG]))
    await assert_raises(SessionBusy, store.delete(KEY))
    await talk.close()
    assert await store.delete(KEY)
    assert not await store.delete(KEY)
    assert await store.info(KEY) is None
    assert await store.bound("local", "/root", "a.ipynb") is None
    await store.create(KEY)
    assert await store.latest(KEY) == []
    assert await store.blob(KEY, PNG.hash) is None


async def test_a_closed_store_says_so(store: SessionStore, owner: Owner) -> None:
    await store.create(KEY)
    await store.aclose()
    await store.aclose()
    for call in (
        store.create(KEY),
        store.info(KEY),
        store.list("local"),
        store.delete(KEY),
        store.open_turn(Turn("t", KEY), owner),
        store.append(Turn("t", KEY), owner, [], 0),
        store.recover(),
        store.latest(KEY),
        store.bound("local", "/r", "a"),
        store.move("/r", "a", "b"),
        store.paths("/r", KEY),
    ):
        with pytest.raises(StoreError, match="closed"):
            await call


# Tests of bindings: which session a notebook uses.


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

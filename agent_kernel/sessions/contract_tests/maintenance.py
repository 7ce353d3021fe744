"""Tests of ``StoreMaintenance`` and ``RetentionQueries``.

A session store need not implement these two protocols. Without them it serves turns, but ``agent-kernel sessions``
cannot maintain it, and its sessions do not expire. The tests need the fixtures ``store``, ``clock`` and ``owner`` of
``suite``.
"""

from __future__ import annotations

from agent_kernel.core.messages import assistant, user
from agent_kernel.core.seams.session_store import PersistentStore
from agent_kernel.core.session import NotebookBinding, Owner, SessionKey, Turn
from agent_kernel.sessions.contract_tests.fixtures import KEY, PNG, Clock, Talk, calls, result, snapshot, whole_turns

OTHER = SessionKey("local", "other")
ANN = SessionKey("ann", "s")


async def ids(store: PersistentStore, clock: Clock, *names: str, namespace: str = "local") -> None:
    """Create sessions with these ids in this order; the clock advances ten seconds before each session is created."""
    for name in names:
        clock.now += 10
        await store.create(SessionKey(namespace, name))


async def test_a_store_in_use_has_no_faults(store: PersistentStore, owner: Owner) -> None:
    await whole_turns(store, 2, PNG)
    await store.branch(KEY, before="t2", name="other")
    await store.add_turn(Turn("t3", KEY), [user("u3"), calls("c"), result("c"), assistant("a3")])
    await store.bind("local", "/root", "a.ipynb", KEY.id)
    await store.fork(KEY, OTHER)
    await store.pop(KEY)
    await store.switch(KEY, "main")
    await store.drop_branch(KEY, "other")
    whole = await snapshot(store)
    await store.restore(whole, {PNG.hash: PNG.data or b""}, replace=True)
    talk = Talk(store, owner, KEY, await store.open_turn(Turn("t4", KEY), owner))
    await talk.say(user("u4"), calls("d"))
    assert await store.verify() == [], "a call of an open turn may still be answered"
    assert await talk.close("cancelled", "stopped")
    before = await store.whole(KEY)
    assert await store.verify() == await store.verify("local") == await store.repair() == []
    await store.forget_set_aside()
    assert await store.whole(KEY) == before


async def test_a_vacuum_changes_no_conversation(store: PersistentStore) -> None:
    await whole_turns(store, 2, PNG)
    await store.add_turn(Turn("t", OTHER), [user("long " * 5000)])
    await store.delete(OTHER)
    before = await store.whole(KEY)
    assert await store.vacuum() >= 0
    assert await store.whole(KEY) == before
    assert await store.blob(KEY, PNG.hash) == PNG.data
    assert await store.verify() == []


async def test_the_numbers_are_of_one_namespace_or_of_all(store: PersistentStore, clock: Clock) -> None:
    first = clock.now
    await whole_turns(store, 2, PNG)
    clock.now += 100
    await store.add_turn(Turn("t", ANN), [user("hers")])
    await store.bind("ann", "/root", "a.ipynb", ANN.id)
    every, hers = await store.stats(), await store.stats("ann")
    names = ("namespaces", "sessions", "turns", "items", "media", "bindings", "set_aside")
    assert [every[name] for name in names] == [2, 2, 3, 5, 1, 1, 0]
    assert [hers[name] for name in names] == [1, 1, 1, 1, 0, 1, 0]
    assert (every["media_bytes"], hers["media_bytes"]) == (PNG.size, 0)
    assert every["bytes"] > hers["bytes"] > 0
    assert every["file_bytes"] >= 0
    assert (every["first_made"], every["last_used"]) == (first, clock.now)
    nobody = await store.stats("nobody")
    assert (nobody["sessions"], nobody["bytes"], nobody["first_made"], nobody["last_used"]) == (0, 0, None, None)


async def test_the_bindings_are_of_one_namespace_or_of_all(store: PersistentStore) -> None:
    for key in (KEY, ANN):
        await store.create(key)
    await store.bind("local", "/root", "b.ipynb", KEY.id)
    await store.bind("local", "/root", "a.ipynb", KEY.id)
    await store.bind("ann", "/root", "a.ipynb", ANN.id)
    hers = [NotebookBinding("ann", "/root", "a.ipynb", ANN.id)]
    ours = [NotebookBinding("local", "/root", path, KEY.id) for path in ("a.ipynb", "b.ipynb")]
    assert await store.bindings("ann") == hers
    assert await store.bindings() == [*hers, *ours]


async def test_sessions_that_were_not_used_are_the_longest_unused_first(
    store: PersistentStore, clock: Clock, owner: Owner
) -> None:
    await ids(store, clock, "a", "b", "c")
    await ids(store, clock, "d", namespace="ann")
    until = clock.now
    await ids(store, clock, "e")
    await store.touch(SessionKey("local", "a"))
    assert [session.key.id for session in await store.idle(until)] == ["b", "c", "d"]
    assert [session.key.id for session in await store.idle(until - 0.5)] == ["b", "c"]
    assert [session.key.id for session in await store.idle(float("inf"))][:3] == ["b", "c", "d"]
    await Talk.begin(store, owner, "b")
    clock.now += 10
    assert "b" not in [session.key.id for session in await store.idle(clock.now)], "it has an open turn"


async def test_sessions_beyond_the_number_are_the_longest_unused_of_each_namespace(
    store: PersistentStore, clock: Clock, owner: Owner
) -> None:
    await ids(store, clock, "a", "b", "c", "d")
    await ids(store, clock, "x", "y", namespace="ann")
    clock.now += 10
    await store.touch(SessionKey("local", "a"))
    assert [session.key.id for session in await store.excess(2, "local")] == ["b", "c"]
    assert await store.excess(4, "local") == await store.excess(2, "ann") == []
    assert {session.key.id for session in await store.excess(1)} == {"b", "c", "d", "x"}
    await Talk.begin(store, owner, "b")
    assert [session.key.id for session in await store.excess(2, "local")] == ["c", "d"], "b has an open turn"

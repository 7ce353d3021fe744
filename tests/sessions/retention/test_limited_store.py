"""Tests the view of a store with limits: only the newest turns are visible, and every method respects this."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from agent_kernel.core.errors import SessionNotFound
from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Message, assistant, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Owner, SessionKey, SessionQuery, Turn
from agent_kernel.sessions.retention.limited_store import LimitedStore, limit_store
from agent_kernel.sessions.retention.limits import RetentionLimits
from tests.sessions.talk import KEY, Clock, Talk, calls, result

OPEN_OR_NO_SESSION = {
    "append",
    "append_at",
    "heartbeat",
    "close_turn",
    "recover",
    "move",
    "unbind",
    "forget",
    "idle",
    "excess",
}
"""Methods that limits have no say in: an open turn's session does not expire; the others name no session."""
CARE = {"verify", "repair", "stats", "vacuum", "fold", "bindings", "forget_set_aside"}


@pytest.fixture
def seen(store: SessionStore, clock: Clock) -> SessionStore:
    """Return a store in which two turns are visible and sessions live 100 s."""
    return limit_store(store, RetentionLimits(ttl=100, max_history_turns=2), clock=clock)


async def add_turns(store: SessionStore, *turns: tuple[str, TurnState], extra: tuple[Message, ...] = ()) -> None:
    owner = Owner.here()
    await store.create(KEY)
    for id, state in turns:
        talk = Talk(store, owner, KEY, await store.open_turn(Turn(id, KEY), owner))
        await talk.say(user(f"ask {id}"), *extra, assistant(f"answer {id}"))
        await talk.close(state)


async def texts(store: SessionStore, limit: int | None = None, **options: Any) -> list[str]:
    return [item.message.text for item in await store.latest(KEY, limit, **options)]


def test_every_method_of_a_store_is_limited_or_said_not_to_be() -> None:
    known = vars(LimitedStore).keys() | OPEN_OR_NO_SESSION | CARE
    wanted = {name for name, _ in inspect.getmembers(SessionStore, inspect.isfunction) if not name.startswith("_")}
    assert not wanted - known, "add them to LimitedStore, or say here why not"


async def test_readers_see_the_newest_turns_and_the_others_stay_stored(seen: SessionStore, store: SessionStore) -> None:
    await add_turns(seen, ("t1", "committed"), ("t2", "committed"), ("t3", "committed"))
    assert await texts(seen) == ["ask t2", "answer t2", "ask t3", "answer t3"]
    assert [turn.id for turn in await seen.turns(KEY)] == ["t2", "t3"]
    assert [turn.id for turn in await seen.turns(KEY, 1)] == ["t3"]
    assert await texts(seen, 1) == ["answer t3"]
    assert await texts(seen, 0) == []
    assert len(await texts(store)) == 6
    assert len((await seen.everything(KEY))[1]) == 6


async def test_a_turn_is_the_message_and_all_that_follows(seen: SessionStore) -> None:
    await add_turns(
        seen, *((f"t{number}", "committed") for number in range(4)), extra=(calls("a", "b"), result("a"), result("b"))
    )
    shown = await seen.latest(KEY)
    assert [item.message.role for item in shown] == ["user", "assistant", "tool", "tool", "assistant"] * 2


async def test_failed_turns_do_not_push_others_out_of_what_the_model_sees(seen: SessionStore) -> None:
    await add_turns(
        seen, ("t1", "committed"), ("t2", "committed"), ("t3", "failed"), ("t4", "failed"), ("t5", "failed")
    )
    assert await texts(seen, failed=False) == ["ask t1", "answer t1", "ask t2", "answer t2"]
    assert await texts(seen) == ["ask t4", "answer t4", "ask t5", "answer t5"]


async def test_the_turn_that_runs_does_not_count(seen: SessionStore, owner: Owner) -> None:
    await add_turns(seen, ("t1", "committed"), ("t2", "committed"), ("t3", "committed"))
    talk = Talk(seen, owner, KEY, await seen.open_turn(Turn("t4", KEY), owner))
    assert await texts(seen) == ["ask t2", "answer t2", "ask t3", "answer t3"]
    await talk.say(user("ask t4"))
    assert await texts(seen) == ["ask t2", "answer t2", "ask t3", "answer t3", "ask t4"]


async def test_each_branch_has_its_own_newest_turns(seen: SessionStore) -> None:
    await add_turns(seen, ("t1", "committed"), ("t2", "committed"), ("t3", "committed"))
    await seen.branch(KEY, before="t2", name="other")
    assert await texts(seen) == ["ask t1", "answer t1"]
    assert await texts(seen, branch="main") == ["ask t2", "answer t2", "ask t3", "answer t3"]


async def test_a_long_session_is_read_from_its_end(seen: SessionStore, store: SessionStore) -> None:
    await add_turns(seen, *((f"t{number}", "committed") for number in range(30)))
    asked: list[int | None] = []
    real = store.latest

    async def latest(key: SessionKey, limit: int | None = None, **options: Any) -> Any:
        asked.append(limit)
        return await real(key, limit, **options)

    store.latest = latest  # type: ignore[method-assign]
    assert len(await texts(seen)) == 4
    assert asked == [4]


async def test_a_list_is_filled_behind_those_that_are_gone(seen: SessionStore, clock: Clock) -> None:
    for number in range(5):
        await seen.create(SessionKey("local", f"old{number}"))
    clock.now += 60
    for number in range(4):
        await seen.create(SessionKey("local", f"new{number}"))
    clock.now += 60
    for number in range(5):
        await seen.touch(SessionKey("local", f"new{number}"))
    assert [session.key.id for session in await seen.list("local", 3)] == ["new3", "new2", "new1"]
    assert len(await seen.list("local", None)) == 4


async def test_a_conversation_that_is_gone_does_not_hide_another_that_began_so(
    seen: SessionStore, store: SessionStore, clock: Clock
) -> None:
    async def begun(id: str, chain: dict[int, str]) -> SessionKey:
        key = SessionKey("local", id)
        await seen.create(key)
        await seen.add_turn(Turn(f"turn-{id}", key), [user("a"), assistant("b")])
        await seen.remember(key, "scope", chain)
        return key

    old = await begun("old", {1: "h1", 2: "h2"})
    clock.now += 60
    new = await begun("new", {1: "h1"})
    clock.now += 60
    found = await seen.match("local", "scope", ["h1", "h2"])
    assert found is not None
    assert (found.key, found.length) == (new, 1)
    assert await store.info(old) is None


async def test_what_is_gone_can_not_be_forked_bound_or_found_by_its_turns(
    seen: SessionStore, store: SessionStore, clock: Clock
) -> None:
    await add_turns(seen, ("t1", "committed"))
    clock.now += 100
    with pytest.raises(SessionNotFound):
        await seen.fork(KEY, SessionKey("local", "copy"))
    with pytest.raises(SessionNotFound):
        await seen.bind("local", "/root", "a.ipynb", KEY.id)
    assert await seen.turn("local", "t1") is None
    assert await seen.everything(KEY) == ([], [])
    assert not await seen.delete(KEY), "it was gone"
    assert await store.info(KEY) is None


async def test_search_finds_what_is_seen(seen: SessionStore, store: SessionStore, clock: Clock) -> None:
    await add_turns(seen, ("t1", "committed"), ("t2", "committed"), ("t3", "committed"))
    assert [hit.session.key for hit in await seen.search("local", SessionQuery("t3"))] == [KEY]
    assert await seen.search("local", SessionQuery("t1")) == []
    assert await store.search("local", SessionQuery("t1")), "it is stored"
    clock.now += 100
    assert await seen.search("local", SessionQuery("t3")) == []


async def test_search_is_filled_behind_those_that_are_gone(seen: SessionStore, clock: Clock) -> None:
    for number in range(8):
        key = SessionKey("local", f"old{number}")
        await seen.add_messages(key, [user("rain rain"), assistant("rain")])
    clock.now += 60
    new = SessionKey("local", "new")
    await seen.add_messages(new, [user("rain")])
    clock.now += 60
    assert [hit.session.key for hit in await seen.search("local", SessionQuery("rain", limit=1))] == [new]

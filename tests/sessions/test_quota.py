"""Tests a namespace that has reached its quota."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from agent_kernel.core.errors import QuotaExceeded
from agent_kernel.core.messages import Media, assistant, user
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.sessions.tables.quota import FRESH_S, Quota
from tests.sessions.talk import KEY, Clock, Talk

FULL = SessionKey("local", "one more")
MAKERS: dict[str, Callable[[SqliteStore], Awaitable[object]]] = {
    "create": lambda store: store.create(FULL),
    "fork": lambda store: store.fork(KEY, FULL),
    "add_turn": lambda store: store.add_turn(Turn("t", FULL), [user("x")]),
    "add_messages": lambda store: store.add_messages(FULL, [user("x")]),
}


@pytest.fixture
def three(clock: Clock) -> MemoryStore:
    return MemoryStore(quota=Quota(sessions=3), clock=clock)


async def fill_store(store: SqliteStore) -> None:
    for id in ("s", "a", "b"):
        await store.create(SessionKey("local", id))


@pytest.mark.parametrize("how", MAKERS)
async def test_no_way_leads_to_a_session_more(three: MemoryStore, how: str) -> None:
    await fill_store(three)
    with pytest.raises(QuotaExceeded, match="The limit of 3 sessions is reached") as caught:
        await MAKERS[how](three)
    assert "quota_sessions" in caught.value.hint
    assert await three.info(FULL) is None


async def test_sessions_that_are_there_go_on(three: MemoryStore, owner: Owner) -> None:
    await fill_store(three)
    await three.create(KEY)
    talk = Talk(three, owner, KEY, await three.open_turn(Turn("t", KEY), owner))
    await talk.say(user("hello"))
    await talk.close()


async def test_room_is_there_at_once_when_one_is_deleted_and_others_have_their_own(three: MemoryStore) -> None:
    await fill_store(three)
    await three.create(SessionKey("ann", "hers"))
    await three.delete(KEY)
    await three.create(FULL)


async def test_a_namespace_that_is_full_of_bytes_opens_no_turn_and_the_one_that_runs_can_end(owner: Owner) -> None:
    store = MemoryStore(quota=Quota(bytes=2_000))
    talk = await Talk.begin(store, owner)
    await talk.say(user("x" * 3_000), assistant("y" * 3_000))
    await talk.close()
    with pytest.raises(QuotaExceeded, match="quota_gb") as caught:
        await store.open_turn(Turn("t2", KEY), owner)
    assert caught.value.details["bytes"] > 6_000
    await store.clear(KEY)
    await store.open_turn(Turn("t3", KEY), owner)


async def test_media_count_as_often_as_they_are_named() -> None:
    store = MemoryStore()
    picture = Media.of("image/png", bytes(1_000))
    await store.add_turn(Turn("t1", KEY), [user("", [picture])])
    one = (await store.stats())["bytes"]
    await store.add_turn(Turn("t2", KEY), [user("", [picture])])
    assert (await store.stats())["bytes"] == 2 * one > 2_000
    await store.pop(KEY)
    assert (await store.stats())["bytes"] == one
    await store.delete(KEY)
    assert (await store.stats())["bytes"] == 0


async def test_far_from_the_quota_nothing_is_counted_again_for_a_while(clock: Clock) -> None:
    store = MemoryStore(quota=Quota(sessions=100_000, bytes=50 * 2**30), clock=clock)
    counted: list[str] = []
    await store._database.write(lambda db: db.set_trace_callback(counted.append))

    async def make(number: int) -> int:
        counted.clear()
        await store.create(SessionKey("local", f"s{number}"))
        return sum("sum(bytes)" in statement for statement in counted)

    assert [await make(number) for number in range(3)] == [1, 0, 0]
    clock.now += FRESH_S
    assert await make(3) == 1

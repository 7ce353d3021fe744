"""Tests writes of unknown outcome: the store finds out whether a write is done, still to be done, or in conflict, and
never guesses.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from agent_kernel.core.errors import Conflict, InvalidRequest, StoreError
from agent_kernel.core.messages import Message, assistant, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Owner, Turn
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.pending_write import PendingWrite
from agent_kernel.turn.turn_writer import TurnWriter
from tests.sessions.faulty import FaultyStore, When
from tests.sessions.talk import KEY, Talk, calls, result, whole_turns

BATCH: Sequence[Message] = [user("add"), calls("c"), result("c"), assistant("2")]


async def pending(store: SessionStore) -> PendingWrite:
    """Store two turns and return a write of a third one, decoded from JSON as a later process gets it."""
    await whole_turns(store, 2)
    told = PendingWrite.of(KEY, "t3", 4, BATCH, await store.latest(KEY))
    return PendingWrite.from_json(json.loads(json.dumps(told.to_json())))


async def test_what_was_stored_is_found_and_not_stored_again(store: SessionStore) -> None:
    told = await pending(store)
    items = await store.add_turn(Turn("t3", KEY), BATCH)
    assert await told.stored(store) == items
    await store.add_turn(Turn("t4", KEY), [user("and then")])
    assert await told.stored(store) == items


async def test_what_was_not_stored_can_be_appended_now(store: SessionStore) -> None:
    told = await pending(store)
    assert await told.stored(store) is None
    items = await store.add_turn(Turn("t3", KEY), BATCH, expect_seq=told.expect_seq)
    assert await told.stored(store) == items


@pytest.mark.parametrize(
    "other",
    [[user("other")], BATCH[:1], [user("other"), *BATCH[1:]], [*BATCH[:1], user("x"), *BATCH[1:]], BATCH[1:]],
)
async def test_anything_else_in_its_place_is_a_conflict(store: SessionStore, other: list[Message]) -> None:
    told = await pending(store)
    await store.add_turn(Turn("t3", KEY), other)
    with pytest.raises(Conflict, match="history has changed"):
        await told.stored(store)


async def test_the_same_words_in_another_turn_are_a_conflict(store: SessionStore) -> None:
    told = await pending(store)
    await store.add_turn(Turn("t9", KEY), BATCH)
    with pytest.raises(Conflict):
        await told.stored(store)


async def test_another_history_before_it_is_a_conflict(store: SessionStore) -> None:
    told = await pending(store)
    await store.pop(KEY)
    with pytest.raises(Conflict):
        await told.stored(store)
    await store.clear(KEY)
    with pytest.raises(Conflict):
        await told.stored(store)


async def test_what_was_stored_and_taken_back_is_a_conflict(store: SessionStore) -> None:
    told = await pending(store)
    items = await store.add_turn(Turn("t3", KEY), BATCH)
    assert await store.rewind(KEY, items)
    with pytest.raises(Conflict):
        await told.stored(store)


async def test_another_branch_is_a_conflict(store: SessionStore) -> None:
    told = await pending(store)
    await store.add_turn(Turn("t3", KEY), BATCH)
    await store.branch(KEY, before="t2")
    with pytest.raises(Conflict):
        await told.stored(store)


async def test_a_turn_that_recovery_closed_in_between_is_a_conflict(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    await talk.say(user("add"), calls("c"))
    told = PendingWrite.of(KEY, "t1", 2, [result("c")], await store.latest(KEY))
    await talk.close("interrupted", "gone")
    with pytest.raises(Conflict):
        await told.stored(store)


@pytest.mark.parametrize("body", [{}, {"namespace": "a"}, {"what": 1}])
def test_a_checkpoint_of_something_else_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        PendingWrite.from_json(body)
    told = PendingWrite.of(KEY, "t", 0, BATCH).to_json()
    with pytest.raises(InvalidRequest):
        PendingWrite.from_json({**told, "count": "4"})


# ------------------------------------------------------------------------------------------ the turn writer's use of it


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("failing", [1, 2])
async def test_an_append_of_unknown_outcome_is_stored_once(when: When, failing: int) -> None:
    store = MemoryStore()
    await store.create(KEY)
    failed = 0

    def fails(_: int, method: str) -> When | None:
        nonlocal failed
        if method != "append" or failed == failing:
            return None
        failed += 1
        return when if failed == 1 else "before"

    opened = await TurnWriter(FaultyStore(store, fails)).begin(Turn("t1", KEY))
    items = await opened.append(BATCH)
    assert items == await store.latest(KEY)
    assert (failed, opened.head) == (failing, 4)
    assert [item.seq for item in await opened.append([user("on")])] == [5]


async def test_an_append_that_fails_to_the_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_kernel.turn.turn_writer.AGAIN_S", (0.0, 0.0))
    store = MemoryStore()
    await store.create(KEY)
    faulty = FaultyStore(store, lambda _, method: "before" if method == "append" else None)
    opened = await TurnWriter(faulty).begin(Turn("t1", KEY))
    with pytest.raises(StoreError):
        await opened.append(BATCH)
    assert faulty.calls.count("append") == 3
    assert await store.latest(KEY) == []


async def test_a_history_that_changed_meanwhile_is_not_written_over() -> None:
    store = MemoryStore()
    await store.create(KEY)
    owner = Owner.here()
    turn_writer = TurnWriter(store, owner)
    opened = await turn_writer.begin(Turn("t1", KEY))

    def fails(_: int, method: str) -> When | None:
        return "before" if method == "append" and not done else None

    done: list[str] = []
    faulty = FaultyStore(store, fails)

    class Racing:
        def __getattr__(self, name: str) -> Any:
            return getattr(faulty, name)

        async def append(self, *arguments: Any) -> Any:
            try:
                return await faulty.append(*arguments)
            except StoreError:
                done.append("another write of this owner came in between")
                await store.append(opened.turn, owner, [user("other")], 0)
                raise

    turn_writer.store = Racing()
    with pytest.raises(Conflict):
        await opened.append(BATCH)
    assert [item.message.text for item in await store.latest(KEY)] == ["other"]


async def test_a_turn_that_may_have_been_opened_is_closed_when_the_store_fails() -> None:
    store = MemoryStore()
    await store.create(KEY)
    faulty = FaultyStore(store, lambda _, method: "after" if method == "open_turn" else None)
    with pytest.raises(StoreError):
        await TurnWriter(faulty).begin(Turn("t1", KEY))
    assert [turn.state for turn in await store.turns(KEY)] == ["failed"]
    await TurnWriter(store).begin(Turn("t2", KEY))

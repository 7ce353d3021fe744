"""Tests of messages from other programs: the store returns them completely and unchanged, and groups them into
turns."""

from __future__ import annotations

from agent_kernel.core.errors import InvalidRequest, SessionBusy
from agent_kernel.core.messages import Message, Text, assistant, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Turn
from agent_kernel.sessions.contract_tests.fixtures import KEY, Clock, Talk, assert_raises, calls, result

SHAPE = {"theirs": {"id": "m1", "parts": [{"text": None}, 1.5, "é\ud800"], "nested": [[[]]]}}


async def test_what_has_no_place_in_a_message_comes_back_as_it_was(store: SessionStore) -> None:
    original = Message("assistant", (Text("hi"),), hidden=True, extra=SHAPE)
    [added] = await store.add_messages(KEY, [original])
    assert added.message == original
    assert [item.message for item in await store.latest(KEY)] == [original]


async def test_a_user_message_begins_a_turn_and_what_follows_continues_it(store: SessionStore, clock: Clock) -> None:
    note = user("note", hidden=True)
    await store.add_messages(KEY, [assistant("first"), user("a"), calls("c1"), result("c1")], record={"by": "x"})
    clock.now += 1
    await store.add_messages(KEY, [note, assistant("more")])
    await store.add_messages(KEY, [user("b"), user("c")], record={"by": "y"})
    turns, items = await store.turns(KEY), await store.latest(KEY)
    ids = [turn.id for turn in turns]
    assert [ids.index(item.turn) for item in items] == [0, 1, 1, 1, 1, 1, 2, 3]
    assert [item.seq for item in items] == list(range(1, 9))
    assert [turn.state for turn in turns] == ["committed"] * 4
    assert [turn.record["by"] for turn in turns] == ["x", "x", "y", "y"]
    assert [turn.since for turn in turns] == [0, 1, 6, 7]


async def test_what_continues_a_branch_leaves_the_turns_of_the_other_as_they_are(store: SessionStore) -> None:
    await store.add_messages(KEY, [user("a"), assistant("b")])
    await store.branch(KEY)
    await store.add_messages(KEY, [assistant("only here")])
    assert [item.message.text for item in await store.latest(KEY)] == ["a", "b", "only here"]
    assert [item.message.text for item in await store.latest(KEY, branch="main")] == ["a", "b"]


async def test_half_a_pair_of_ours_is_refused_whole(store: SessionStore) -> None:
    await store.add_messages(KEY, [user("a")])
    for batch in ([user("b"), calls("c1")], [user("b"), result("c1")], [user("b"), calls("c1"), user("c")]):
        await assert_raises(InvalidRequest, store.add_messages(KEY, batch))
    assert [item.message.text for item in await store.latest(KEY)] == ["a"]
    assert await store.add_messages(KEY, []) == []


async def test_other_programs_wait_for_an_open_turn(store: SessionStore, talk: Talk) -> None:
    await assert_raises(SessionBusy, store.add_messages(KEY, [user("a")]))
    await talk.close()
    await store.add_messages(KEY, [assistant("after")])
    assert [turn.id for turn in await store.turns(KEY)] == [Turn("t1", KEY).id]

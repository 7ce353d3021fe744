"""Tests of turns that are added elsewhere than at the end of the current branch, and of finding a session by the
beginning of its conversation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_kernel.core.errors import Conflict, InvalidRequest, LeaseLost, SequenceConflict, SessionBusy
from agent_kernel.core.messages import Message, Text, assistant, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import MAIN, Owner, Turn
from agent_kernel.sessions.contract_tests.fixtures import (
    KEY,
    Clock,
    Talk,
    assert_raises,
    calls,
    read_session,
    result,
    whole_turns,
)

SHAPE = {"theirs": {"id": "m1", "parts": [{"text": None}, 1.5, "é\ud800"], "nested": [[[]]]}}


async def exchange(talk: Talk, number: int) -> Talk:
    await talk.say(user(f"u{number}"), calls("c"), result("c"), assistant(f"a{number}"))
    await talk.close()
    return await talk.again(f"t{number + 1}")


async def two(store: SessionStore, owner: Owner) -> Talk:
    """Create a session with two exchanges of four items each, open another turn, and return that turn as a Talk."""
    return await exchange(await exchange(await Talk.begin(store, owner), 1), 2)


async def at(talk: Talk, behind: int, *messages: Message, earlier: tuple[tuple[Message, ...], ...] = ()) -> list[int]:
    head = await talk.head()
    added = await talk.store.append_at(talk.turn, talk.owner, messages, head, behind=behind, earlier=earlier)
    return [item.seq for item in added]


async def test_behind_an_earlier_item_it_makes_a_branch_that_has_its_items_at_once(
    store: SessionStore, owner: Owner
) -> None:
    talk = await two(store, owner)
    assert await at(talk, 4, user("u2x")) == [9]
    assert await talk.texts() == ["u1", "", "2", "a1", "u2x"]
    assert [(b.name, b.parent, b.head, b.current) for b in await store.branches(talk.key)] == [
        (MAIN, "", 8, False),
        ("branch-2", MAIN, 9, True),
    ]
    assert [item.seq for item in await store.latest(talk.key, branch=MAIN)] == [*range(1, 9)]
    await talk.say(assistant("a2x"))
    assert await talk.close()
    assert [turn.id for turn in await store.turns(talk.key)] == ["t1", "t3"]
    assert await store.siblings(talk.key, "t3") == [("t2", MAIN), ("t3", "branch-2")]


async def test_nothing_goes_on_between_calls_and_their_results(store: SessionStore, talk: Talk) -> None:
    await talk.say(user("u1"), calls("a", "b"), result("b"), result("a"), assistant("a1"))
    await talk.close()
    talk = await talk.again("t2")
    for seq in (2, 3):
        await assert_raises(InvalidRequest, at(talk, seq, user("u2")))
    assert [branch.name for branch in await store.branches(talk.key)] == [MAIN]
    assert await at(talk, 4, user("u2")) == [6]


async def test_at_the_end_of_the_current_branch_it_is_an_append(store: SessionStore, owner: Owner) -> None:
    talk = await two(store, owner)
    assert await at(talk, 8, user("u3")) == [9]
    assert [branch.name for branch in await store.branches(talk.key)] == [MAIN]


async def test_at_the_end_of_another_branch_it_goes_on_there(store: SessionStore, owner: Owner) -> None:
    talk = await two(store, owner)
    await at(talk, 4, user("u2x"))
    await talk.close()
    talk = await talk.again("t4")
    assert await at(talk, 8, user("u3")) == [10]
    assert [(branch.name, branch.head, branch.current) for branch in await store.branches(talk.key)] == [
        (MAIN, 10, True),
        ("branch-2", 9, False),
    ]


async def test_behind_nothing_it_begins_anew(store: SessionStore, owner: Owner) -> None:
    talk = await two(store, owner)
    await at(talk, 0, user("u1x"))
    assert await talk.texts() == ["u1x"]
    assert len(await store.latest(talk.key, branch=MAIN)) == 8


async def test_within_a_turn_the_branch_has_the_beginning_of_that_turn(store: SessionStore, owner: Owner) -> None:
    talk = await two(store, owner)
    await at(talk, 3, assistant("a1x"), user("u2"))
    assert await talk.texts() == ["u1", "", "2", "a1x", "u2"]
    assert [turn.id for turn in await store.turns(talk.key)] == ["t1", "t3"]


async def test_what_was_said_elsewhere_becomes_turns_of_its_own(store: SessionStore, talk: Talk) -> None:
    earlier = ((user("u1"), assistant("a1")), (user("u2"), calls("c"), result("c"), assistant("a2")))
    assert await at(talk, 0, user("u3"), earlier=earlier) == [7]
    await talk.say(assistant("a3"))
    await talk.close()
    turns = await store.turns(talk.key)
    assert [(turn.ordinal, turn.since, turn.state) for turn in turns] == [
        (1, 0, "committed"),
        (2, 2, "committed"),
        (3, 6, "committed"),
    ]
    assert turns[-1].id == talk.turn.id
    session = await read_session(store, talk.key)
    assert (session.turns, session.head) == (3, 8)
    assert (await talk.again("t4")).turn.ordinal == 4


async def test_what_can_not_be_is_refused_and_changes_nothing(store: SessionStore, owner: Owner) -> None:
    talk = await two(store, owner)
    before = await store.info(talk.key)
    with pytest.raises(InvalidRequest, match="no item 99"):
        await at(talk, 99, user("x"))
    with pytest.raises(InvalidRequest, match="no result"):
        await at(talk, 4, user("x"), earlier=((user("u"), calls("c")),))
    await assert_raises(InvalidRequest, at(talk, 4, result("c")))
    await assert_raises(SequenceConflict, store.append_at(talk.turn, owner, [user("x")], 3, behind=4))
    await assert_raises(
        LeaseLost, store.append_at(talk.turn, replace(owner, instance="other"), [user("x")], 8, behind=4)
    )
    assert await store.info(talk.key) == before
    assert [branch.name for branch in await store.branches(talk.key)] == [MAIN]
    assert [turn.id for turn in await store.turns(talk.key)] == ["t1", "t2", "t3"]


async def test_a_turn_that_has_items_stays_where_it_is(store: SessionStore, owner: Owner) -> None:
    talk = await two(store, owner)
    await talk.say(user("u3"))
    with pytest.raises(Conflict, match="cannot be moved"):
        await at(talk, 4, user("u2x"))


# -------------------------------------------------------------------------------------------- openings of conversations


async def test_a_session_of_a_notebook_is_not_found_by_its_beginning(store: SessionStore) -> None:
    await whole_turns(store, 1)
    await store.remember(KEY, "scope", {2: "h2"})
    await store.bind(KEY.namespace, "/root", "a.ipynb", KEY.id)
    assert await store.match(KEY.namespace, "scope", ["h2"]) is None
    await store.unbind(KEY.namespace, "/root", "a.ipynb")
    assert await store.match(KEY.namespace, "scope", ["h2"]) is not None


async def test_a_session_whose_beginning_is_forgotten_is_not_found(store: SessionStore) -> None:
    await whole_turns(store, 1)
    await store.remember(KEY, "scope", {2: "h2"})
    await store.forget(KEY)
    await store.forget(KEY)
    assert await store.match(KEY.namespace, "scope", ["h2"]) is None


# Tests of messages from other programs: the store returns them completely and unchanged, and groups them into turns.


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

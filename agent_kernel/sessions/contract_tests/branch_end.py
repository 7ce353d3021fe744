"""Tests of the end of a branch: adding whole turns, extending a turn, and removing the newest items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent_kernel.core.errors import Conflict, InvalidRequest, SequenceConflict, SessionBusy, SessionNotFound
from agent_kernel.core.messages import Usage, assistant, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import MAIN, Item, Owner, SessionKey, Turn
from agent_kernel.sessions.contract_tests.fixtures import (
    KEY,
    PNG,
    Clock,
    Talk,
    assert_raises,
    calls,
    read_session,
    result,
    whole_turns,
)


def texts(items: Sequence[Item]) -> list[str]:
    return [item.message.text for item in items]


# ------------------------------------------------------------------------------------------------ adding whole turns


async def test_a_turn_that_happened_elsewhere_is_stored_at_once(store: SessionStore, clock: Clock) -> None:
    usage = Usage(3, 4)
    turn = Turn("t", KEY, model="m", cell="c", opened=clock.now - 9, record={"from": "elsewhere"})
    items = await store.add_turn(turn, [user("add"), calls("c1"), result("c1"), assistant("2")], usage=usage)
    assert [item.seq for item in items] == [1, 2, 3, 4]
    assert items == await store.latest(KEY)
    closed = replace(turn, ordinal=1, state="committed", closed=clock.now, usage=usage.to_json())
    assert await store.turns(KEY) == [closed]
    session = await read_session(store)
    assert (session.head, session.turns) == (4, 1)


async def test_a_whole_turn_is_refused_whole(store: SessionStore, owner: Owner) -> None:
    await whole_turns(store, 1)
    before = await store.info(KEY)
    await assert_raises(SequenceConflict, store.add_turn(Turn("t2", KEY), [user("late")], expect_seq=1))
    await assert_raises(Conflict, store.add_turn(Turn("t1", KEY), [user("twice")]))
    await assert_raises(InvalidRequest, store.add_turn(Turn("t2", KEY), [user("add"), calls("c1")]))
    await assert_raises(InvalidRequest, store.add_turn(Turn("t2", KEY), [result("c1")]))
    assert await store.info(KEY) == before
    await store.open_turn(Turn("t2", KEY), owner)
    await assert_raises(SessionBusy, store.add_turn(Turn("t3", KEY), [user("busy")]))
    nowhere = SessionKey("local", "new")
    await assert_raises(InvalidRequest, store.add_turn(Turn("t", nowhere), [calls("c1")]))
    assert await store.info(nowhere) is None


async def test_the_newest_turn_can_grow(store: SessionStore) -> None:
    await whole_turns(store, 2)
    added = await store.extend_turn(Turn("t2", KEY), [calls("c"), result("c"), assistant("more")])
    assert [(item.seq, item.turn) for item in added] == [(5, "t2"), (6, "t2"), (7, "t2")]
    assert len(await store.latest(KEY)) == 7
    await assert_raises(InvalidRequest, store.extend_turn(Turn("t2", KEY), [calls("c")]))
    assert len(await store.latest(KEY)) == 7


async def test_only_the_newest_turn_of_the_current_branch_grows(store: SessionStore, owner: Owner) -> None:
    await whole_turns(store, 2)
    await assert_raises(Conflict, store.extend_turn(Turn("t1", KEY), [user("no")]))
    await assert_raises(Conflict, store.extend_turn(Turn("nowhere", KEY), [user("no")]))
    await assert_raises(SessionNotFound, store.extend_turn(Turn("t1", SessionKey("local", "nowhere")), [user("no")]))
    await store.branch(KEY)
    await assert_raises(Conflict, store.extend_turn(Turn("t2", KEY), [user("it is on main too")]))
    await store.switch(KEY, MAIN)
    await store.open_turn(Turn("t3", KEY), owner)
    await assert_raises(SessionBusy, store.extend_turn(Turn("t2", KEY), [user("busy")]))


# --------------------------------------------------------------------------------------- removing the newest item (pop)


async def test_pop_takes_the_newest_item(store: SessionStore) -> None:
    await assert_raises(SessionNotFound, store.pop(KEY))
    await store.create(KEY)
    before = await store.info(KEY)
    assert await store.pop(KEY) == []
    assert await store.info(KEY) == before
    await store.add_turn(Turn("t1", KEY), [user("Hello"), assistant("Hi there!"), user("How are you?")])
    seen = [texts(await store.pop(KEY)) for _ in range(4)]
    assert seen == [["How are you?"], ["Hi there!"], ["Hello"], []]


async def test_pop_leaves_other_sessions_alone(store: SessionStore) -> None:
    await whole_turns(store, 1)
    other = SessionKey("local", "other")
    await store.add_turn(Turn("t1", other), [user("stays")])
    await store.pop(KEY)
    assert texts(await store.latest(other)) == ["stays"]


async def test_pop_takes_a_call_with_all_its_results(store: SessionStore) -> None:
    await store.add_turn(Turn("t1", KEY), [user("add"), calls("a", "b", "c"), result("a"), result("b"), result("c")])
    taken = await store.pop(KEY)
    assert [item.message.role for item in taken] == ["assistant", "tool", "tool", "tool"]
    assert texts(await store.latest(KEY)) == ["add"]


async def test_a_number_is_not_given_again_after_a_pop(store: SessionStore) -> None:
    await whole_turns(store, 1)
    await store.pop(KEY)
    [item] = await store.add_turn(Turn("t2", KEY), [user("new")])
    assert item.seq == 3


async def test_a_turn_keeps_its_usage_until_its_last_item_is_taken(store: SessionStore) -> None:
    usage = Usage(80, 120)
    await store.add_turn(Turn("t1", KEY), [user("u"), assistant("a")], usage=usage)
    await store.pop(KEY)
    assert [turn.usage for turn in await store.turns(KEY)] == [usage.to_json()]
    await store.pop(KEY)
    assert await store.turns(KEY) == []
    assert await store.turn("local", "t1") is None


async def test_pop_takes_media_that_nothing_else_names(store: SessionStore) -> None:
    await store.add_turn(Turn("t1", KEY), [user("one", [PNG]), user("two", [PNG])])
    await store.pop(KEY)
    assert await store.blob(KEY, PNG.hash) == PNG.data
    await store.pop(KEY)
    assert await store.blob(KEY, PNG.hash) is None


async def test_a_branch_is_drained_while_another_keeps_what_they_shared(store: SessionStore) -> None:
    await whole_turns(store, 2)
    await store.branch(KEY, before="t2", name="edit")
    await store.add_turn(Turn("t3", KEY), [user("own")])
    taken = []
    while items := await store.pop(KEY):
        taken += texts(items)
        assert texts(await store.latest(KEY, branch=MAIN)) == ["u1", "a1", "u2", "a2"]
        assert len((await store.everything(KEY))[1]) == 4
    assert taken == ["own", "a1", "u1"]
    assert await store.turns(KEY) == []
    await store.switch(KEY, MAIN)
    assert [texts(await store.pop(KEY)) for _ in range(5)] == [["a2"], ["u2"], ["a1"], ["u1"], []]
    assert await store.everything(KEY) == ([], [])


async def test_main_is_drained_while_a_branch_keeps_what_they_shared(store: SessionStore) -> None:
    await whole_turns(store, 3)
    await store.branch(KEY, before="t3", name="edit")
    await store.add_turn(Turn("t4", KEY), [user("own")])
    await store.switch(KEY, MAIN)
    while await store.pop(KEY):
        assert texts(await store.latest(KEY, branch="edit")) == ["u1", "a1", "u2", "a2", "own"]
    await store.add_turn(Turn("t5", KEY), [user("fresh")])
    assert texts(await store.latest(KEY)) == ["fresh"]
    assert await store.siblings(KEY, "t5") == [("t1", "edit"), ("t5", MAIN)]


async def test_a_branch_goes_on_after_a_pop_of_what_it_shares(store: SessionStore) -> None:
    await whole_turns(store, 2)
    await store.branch(KEY, name="edit")
    await store.pop(KEY)
    await store.add_turn(Turn("t3", KEY), [assistant("another answer")])
    assert texts(await store.latest(KEY)) == ["u1", "a1", "u2", "another answer"]
    assert [turn.id for turn in await store.turns(KEY)] == ["t1", "t2", "t3"]
    assert texts(await store.latest(KEY, branch=MAIN)) == ["u1", "a1", "u2", "a2"]


# ---------------------------------------------------------------------------------------- removing given items (rewind)


async def test_rewind_takes_exactly_the_tail_that_is_named(store: SessionStore) -> None:
    await whole_turns(store, 2)
    tail = await store.latest(KEY, 3)
    assert await store.rewind(KEY, tail)
    assert texts(await store.latest(KEY)) == ["u1"]
    assert [turn.id for turn in await store.turns(KEY)] == ["t1"]
    assert not await store.rewind(KEY, tail)
    assert texts(await store.latest(KEY)) == ["u1"]


async def test_a_tail_that_is_not_exactly_the_newest_changes_nothing(store: SessionStore) -> None:
    await whole_turns(store, 2)
    items = await store.latest(KEY)
    before = await store.info(KEY)
    wrong = [
        items[:3],
        items[1:3],
        items[::-1],
        [replace(items[-1], message=assistant("other"))],
        [replace(items[-1], turn="t9")],
        [replace(items[-1], seq=9)],
        [items[-2], items[-1], replace(items[-1], seq=5)],
        [replace(items[0], seq=0), *items],
    ]
    for tail in wrong:
        assert not await store.rewind(KEY, tail)
    assert await store.rewind(KEY, [])
    assert await store.info(KEY) == before
    assert await store.latest(KEY) == items


async def test_the_time_of_an_item_does_not_count(store: SessionStore) -> None:
    await whole_turns(store, 1)
    [newest] = await store.latest(KEY, 1)
    assert await store.rewind(KEY, [replace(newest, time=0.0)])


async def test_rewind_never_leaves_a_call_without_its_results(store: SessionStore) -> None:
    await store.add_turn(Turn("t1", KEY), [user("add"), calls("a", "b"), result("a"), result("b")])
    items = await store.latest(KEY)
    for tail in (items[3:], items[2:]):
        await assert_raises(InvalidRequest, store.rewind(KEY, tail))
    assert await store.latest(KEY) == items
    assert await store.rewind(KEY, items[1:])
    assert texts(await store.latest(KEY)) == ["add"]


async def test_rewind_of_a_shared_tail_keeps_it_for_the_others(store: SessionStore) -> None:
    await whole_turns(store, 3)
    await store.branch(KEY, name="edit")
    await store.add_turn(Turn("t4", KEY), [user("own")])
    assert await store.rewind(KEY, await store.latest(KEY, 4))
    assert texts(await store.latest(KEY)) == ["u1", "a1", "u2"]
    assert texts(await store.latest(KEY, branch=MAIN)) == ["u1", "a1", "u2", "a2", "u3", "a3"]
    assert await store.turn("local", "t4") is None


async def test_rewind_needs_a_session_without_an_open_turn(store: SessionStore, owner: Owner) -> None:
    await assert_raises(SessionNotFound, store.rewind(KEY, []))
    talk = await Talk.begin(store, owner)
    items = await talk.say(user("u"))
    await assert_raises(SessionBusy, store.rewind(KEY, items), store.pop(KEY))
    await talk.close()
    assert await store.rewind(KEY, items)


async def test_a_session_counts_the_turns_and_items_that_there_are(store: SessionStore) -> None:
    async def count_stored() -> tuple[int, int]:
        session = await read_session(store)
        [listed] = [session for session in await store.list(KEY.namespace) if session.key == KEY]
        assert (listed.turn_count, listed.last_seq) == (session.turn_count, session.last_seq)
        return session.turn_count, session.last_seq

    await whole_turns(store, 3)
    assert await count_stored() == (3, 6)
    await store.rewind(KEY, await store.latest(KEY, 2))
    assert await count_stored() == (2, 4)
    await store.branch(KEY, before="t2", name="edit")
    await store.add_turn(Turn("t4", KEY), [user("again"), assistant("yes")])
    assert await count_stored() == (3, 8), "on all branches"
    await store.rewind(KEY, await store.latest(KEY, 2))
    assert await count_stored() == (2, 4)
    assert (await read_session(store)).head == 8, "no number is given twice"

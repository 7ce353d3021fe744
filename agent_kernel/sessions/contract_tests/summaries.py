"""Tests of the data that a store has about a session besides its items: its description, its summaries, the hashes of
its first messages, and the cells of its turns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_kernel.core.errors import Conflict, InvalidRequest, SessionNotFound
from agent_kernel.core.messages import user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import (
    MAIN,
    MAX_DESCRIPTION,
    MAX_TAGS,
    SUMMARY_CLAIM_S,
    Owner,
    SessionKey,
    SessionUpdate,
    Summary,
    Turn,
)
from agent_kernel.sessions.contract_tests.fixtures import KEY, Clock, assert_raises, read_session, whole_turns

NOWHERE = SessionKey("local", "nowhere")


# ------------------------------------------------------------------------------------------------- descriptions


async def test_a_description_changes_what_it_names_and_nothing_else(store: SessionStore, clock: Clock) -> None:
    session = await store.create(KEY, "title")
    clock.now += 1
    one = await store.describe(KEY, SessionUpdate(tags=("b", " a ", "b"), metadata={"k": [1, None, "é"]}))
    assert (one.title, one.tags, one.metadata, one.context) == ("title", ("b", "a"), {"k": [1, None, "é"]}, None)
    assert (one.updated, one.revision > session.revision) == (clock.now, True)
    two = await store.describe(KEY, SessionUpdate(title="new", context={"plan": {"step": 1}}))
    assert (two.title, two.tags, two.metadata, two.context) == ("new", one.tags, one.metadata, {"plan": {"step": 1}})
    three = await store.describe(KEY, SessionUpdate(tags=(), metadata={}, context={}))
    assert (three.tags, three.metadata, three.context) == ((), {}, {})
    assert await store.info(KEY) == three
    [listed] = await store.list("local")
    assert listed == three


@pytest.mark.parametrize(
    "change",
    [
        SessionUpdate(tags=tuple(map(str, range(MAX_TAGS + 1)))),
        SessionUpdate(tags=("",)),
        SessionUpdate(tags=("x" * 101,)),
        SessionUpdate(tags=("a\nb",)),
        SessionUpdate(title="\ud800"),
        SessionUpdate(metadata={"x": "y" * MAX_DESCRIPTION}),
        SessionUpdate(context="y" * MAX_DESCRIPTION),
        SessionUpdate(metadata={"x": float("nan")}),
        SessionUpdate(context=object()),
    ],
)
async def test_what_can_not_describe_a_session_is_refused(store: SessionStore, change: SessionUpdate) -> None:
    session = await store.create(KEY)
    await assert_raises(InvalidRequest, store.describe(KEY, change))
    assert await store.info(KEY) == session


async def test_only_a_session_that_is_there_is_described(store: SessionStore) -> None:
    await assert_raises(SessionNotFound, store.describe(NOWHERE, SessionUpdate(title="x")))


async def test_a_touch_is_remembered_and_changes_nothing_else(store: SessionStore, clock: Clock) -> None:
    session = await store.create(KEY)
    clock.now += 5
    await store.touch(KEY)
    touched = await read_session(store)
    assert (touched.accessed, touched.updated, touched.revision) == (clock.now, session.updated, session.revision)
    await store.touch(NOWHERE)
    assert await store.info(NOWHERE) is None


async def test_a_session_that_changed_meanwhile_is_not_deleted(store: SessionStore) -> None:
    original = await store.create(KEY)
    await store.rename(KEY, "in use again")
    await assert_raises(Conflict, store.delete(KEY, original.revision))
    session = await read_session(store)
    assert await store.delete(KEY, session.revision)
    assert not await store.delete(KEY, session.revision)


# ---------------------------------------------------------------------------------------------------- summaries


async def test_a_summary_stands_for_its_branch_up_to_an_item(store: SessionStore, owner: Owner, clock: Clock) -> None:
    await whole_turns(store, 3)
    assert await store.claim_summary(KEY, owner)
    summary = Summary(KEY, 4, "They met.", model="m", usage={"prompt_tokens": 9}, reason="asked for")
    added = await store.add_summary(summary, owner)
    assert added == replace(summary, id=added.id, time=clock.now)
    assert added.id > 0
    assert await store.summaries(KEY) == [added]
    assert len(await store.latest(KEY)) == 6
    assert await store.claim_summary(KEY, owner)
    second = await store.add_summary(replace(summary, last=6, text="And went on."), owner)
    assert await store.summaries(KEY) == [added, second]


async def test_one_at_a_time_writes_a_summary(store: SessionStore, owner: Owner, clock: Clock) -> None:
    await whole_turns(store, 1)
    other = replace(owner, instance="other")
    assert await store.claim_summary(KEY, owner)
    assert not await store.claim_summary(KEY, owner)
    assert not await store.claim_summary(KEY, other)
    await assert_raises(Conflict, store.add_summary(Summary(KEY, 2, "not mine to write"), other))
    await store.release_summary(KEY, other)
    assert not await store.claim_summary(KEY, other)
    await store.release_summary(KEY, owner)
    assert await store.claim_summary(KEY, other)
    clock.now += SUMMARY_CLAIM_S - 1
    assert not await store.claim_summary(KEY, owner)
    clock.now += 1
    assert await store.claim_summary(KEY, owner)
    await assert_raises(Conflict, store.add_summary(Summary(KEY, 2, "too late"), other))
    assert await store.summaries(KEY) == []


@pytest.mark.parametrize("last", [0, 2, 5, 99])
async def test_a_summary_ends_at_an_item_of_the_branch_behind_the_newest_summary(
    store: SessionStore, owner: Owner, last: int
) -> None:
    await whole_turns(store, 2)
    await store.claim_summary(KEY, owner)
    await store.add_summary(Summary(KEY, 2, "first"), owner)
    await store.branch(KEY, name="edit")
    await store.add_turn(Turn("t3", KEY), [user("own")])
    await store.switch(KEY, MAIN)
    await store.claim_summary(KEY, owner)
    await assert_raises(Conflict, store.add_summary(Summary(KEY, last, "no"), owner))
    assert [summary.text for summary in await store.summaries(KEY)] == ["first"]


async def test_a_branch_has_the_summaries_of_what_it_shares(store: SessionStore, owner: Owner) -> None:
    await whole_turns(store, 3)
    for last in (2, 6):
        await store.claim_summary(KEY, owner)
        await store.add_summary(Summary(KEY, last, f"up to {last}"), owner)
    await store.branch(KEY, before="t3", name="edit")
    assert [summary.last for summary in await store.summaries(KEY)] == [2]
    assert [summary.last for summary in await store.summaries(KEY, branch=MAIN)] == [2, 6]
    await store.claim_summary(KEY, owner)
    await store.add_summary(Summary(KEY, 4, "of the branch"), owner)
    assert [summary.last for summary in await store.summaries(KEY)] == [2, 4]


async def test_undoing_takes_the_newest_summary_of_the_branch(store: SessionStore, owner: Owner) -> None:
    await whole_turns(store, 2)
    for last in (2, 4):
        await store.claim_summary(KEY, owner)
        await store.add_summary(Summary(KEY, last, f"up to {last}"), owner)
    for last in (4, 2):
        undone = await store.undo_summary(KEY)
        assert undone is not None
        assert undone.last == last
    assert await store.undo_summary(KEY) is None
    assert len(await store.latest(KEY)) == 4


async def test_a_summary_goes_with_its_last_item(store: SessionStore, owner: Owner) -> None:
    await whole_turns(store, 2)
    await store.claim_summary(KEY, owner)
    await store.add_summary(Summary(KEY, 4, "up to 4"), owner)
    await store.pop(KEY)
    assert await store.summaries(KEY) == []


# -------------------------------------------------------------------------------------------- openings of conversations


async def test_a_session_is_found_by_the_longest_beginning(store: SessionStore) -> None:
    await whole_turns(store, 2)
    await store.remember(KEY, "scope", {2: "h2", 4: "h4"})
    match = await store.match("local", "scope", ["h2", "h4", "h6"])
    assert match is not None
    assert (match.key, match.length, match.seq) == (KEY, 2, 4)
    shorter = await store.match("local", "scope", ["h2", "other"])
    assert shorter is not None
    assert (shorter.length, shorter.seq) == (1, 2)
    for namespace, scope, chain in (("local", "scope", ["x"]), ("local", "other", ["h2"]), ("other", "scope", ["h2"])):
        assert await store.match(namespace, scope, chain) is None
    assert await store.match("local", "scope", []) is None


async def test_of_two_sessions_that_began_so_the_one_used_last_is_found(store: SessionStore, clock: Clock) -> None:
    for id in ("a", "b"):
        key = SessionKey("local", id)
        await store.add_turn(Turn("t1", key), [user("u")])
        await store.remember(key, "scope", {1: "h"})
    clock.now += 1
    await store.rename(SessionKey("local", "a"), "used last")
    match = await store.match("local", "scope", ["h"])
    assert match is not None
    assert match.key.id == "a"


async def test_a_beginning_that_was_taken_back_is_not_found(store: SessionStore) -> None:
    await whole_turns(store, 2)
    await store.remember(KEY, "scope", {4: "h4"})
    await store.pop(KEY)
    assert await store.match("local", "scope", ["h4"]) is None
    await store.remember(KEY, "scope", {3: "h3"})
    await store.clear(KEY)
    assert await store.match("local", "scope", ["h3"]) is None


# ---------------------------------------------------------------------------------------------------------- turns by id


async def test_a_turn_is_found_by_its_id_alone(store: SessionStore, clock: Clock) -> None:
    for n, id in enumerate("ab"):
        await store.add_turn(Turn("same", SessionKey("local", id), opened=clock.now + n), [user(id)])
    await store.add_turn(Turn("same", SessionKey("other", "c")), [user("c")])
    turn = await store.turn("local", "same")
    assert turn is not None
    assert turn.key.id == "b"
    assert await store.turn("local", "nowhere") is None
    await store.delete(SessionKey("local", "b"))
    turn = await store.turn("local", "same")
    assert turn is not None
    assert turn.key.id == "a"


async def test_turns_of_a_cell_are_found_on_every_branch(store: SessionStore) -> None:
    await store.add_turn(Turn("t1", KEY, cell="one"), [user("u1")])
    await store.add_turn(Turn("t2", KEY, cell="two"), [user("u2")])
    await store.branch(KEY, before="t2")
    await store.add_turn(Turn("t3", KEY, cell="two"), [user("u3")])
    await store.add_turn(Turn("t4", KEY), [user("u4")])
    assert [turn.id for turn in await store.of_cell(KEY, "two")] == ["t2", "t3"]
    assert [turn.id for turn in await store.of_cell(KEY, "two", 1)] == ["t3"]
    assert await store.of_cell(KEY, "") == []
    assert await store.of_cell(KEY, "three") == []
    await assert_raises(InvalidRequest, store.of_cell(KEY, "two", -1))


async def test_a_turn_is_read_from_whichever_branch_it_is_on(store: SessionStore) -> None:
    await whole_turns(store, 2)
    await store.branch(KEY, before="t2")
    await store.add_turn(Turn("t3", KEY), [user("u3")])
    turns, items = await store.everything(KEY)
    for turn in turns:
        assert await store.of_turn(turn) == [item for item in items if item.turn == turn.id] != []
    assert await store.of_turn(Turn("none", KEY)) == await store.of_turn(Turn("t1", NOWHERE)) == []


async def test_everything_is_of_all_branches_in_order(store: SessionStore) -> None:
    await whole_turns(store, 2)
    await store.branch(KEY, before="t2")
    await store.add_turn(Turn("t3", KEY), [user("u3")])
    turns, items = await store.everything(KEY)
    assert [turn.id for turn in turns] == ["t1", "t2", "t3"]
    assert [turn.since for turn in turns] == [0, 2, 4]
    assert [item.seq for item in items] == [1, 2, 3, 4, 5]
    assert await store.everything(NOWHERE) == ([], [])


async def test_a_binding_is_taken_back(store: SessionStore) -> None:
    await store.create(KEY)
    await store.bind("local", "/r", "a.ipynb", "s")
    assert not await store.unbind("other", "/r", "a.ipynb")
    assert await store.unbind("local", "/r", "a.ipynb")
    assert not await store.unbind("local", "/r", "a.ipynb")
    assert await store.bound("local", "/r", "a.ipynb") is None
    assert await store.info(KEY) is not None

"""Tests of branches: editing an earlier message deletes nothing, and items that several branches share stay in each of
them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent_kernel.core.errors import (
    BranchNotFound,
    Conflict,
    InvalidRequest,
    SessionBusy,
    SessionNotFound,
    TurnNotFound,
)
from agent_kernel.core.messages import assistant, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import MAIN, Owner, SessionKey, SessionUpdate, Turn
from agent_kernel.sessions.contract_tests.fixtures import (
    KEY,
    PNG,
    Clock,
    Talk,
    assert_raises,
    calls,
    read_session,
    result,
    snapshot,
    whole_turns,
)


async def join_texts(store: SessionStore, branch: str | None = None) -> str:
    """Return the texts of the items of a branch, joined with spaces."""
    return " ".join(item.message.text for item in await store.latest(KEY, branch=branch))


async def names(store: SessionStore) -> list[str]:
    return [branch.name for branch in await store.branches(KEY)]


async def current(store: SessionStore) -> str:
    [name] = [branch.name for branch in await store.branches(KEY) if branch.current]
    assert (await read_session(store)).branch == name
    return name


async def test_a_session_is_made_with_one_branch(store: SessionStore, clock: Clock) -> None:
    assert await store.branches(KEY) == []
    await store.create(KEY)
    [branch] = await store.branches(KEY)
    assert (branch.name, branch.parent, branch.since, branch.head, branch.turns) == (MAIN, "", 0, 0, 0)
    assert (branch.created, branch.current) == (clock.now, True)


async def test_a_branch_has_everything_before_a_turn_and_is_current(store: SessionStore) -> None:
    await whole_turns(store, 3)
    edit = await store.branch(KEY, before="t2", name="edit")
    assert (edit.name, edit.parent, edit.since, edit.head, edit.turns, edit.current) == (
        "edit",
        MAIN,
        2,
        2,
        1,
        True,
    )
    assert await join_texts(store) == "u1 a1"
    assert await join_texts(store, MAIN) == "u1 a1 u2 a2 u3 a3"
    assert [turn.id for turn in await store.turns(KEY)] == ["t1"]
    assert [turn.id for turn in await store.turns(KEY, branch=MAIN)] == ["t1", "t2", "t3"]
    assert await current(store) == "edit"


async def test_what_is_said_on_a_branch_is_said_there_only(store: SessionStore) -> None:
    await whole_turns(store, 2)
    await store.branch(KEY, before="t2", name="edit")
    [question, _] = await store.add_turn(Turn("t3", KEY), [user("u3"), assistant("a3")])
    assert question.seq == 5
    assert await join_texts(store) == "u1 a1 u3 a3"
    await store.switch(KEY, MAIN)
    assert await join_texts(store) == "u1 a1 u2 a2"
    await store.add_turn(Turn("t4", KEY), [user("u4")])
    assert await join_texts(store) == "u1 a1 u2 a2 u4"
    assert await join_texts(store, "edit") == "u1 a1 u3 a3"
    assert [(branch.name, branch.head, branch.turns) for branch in await store.branches(KEY)] == [
        (MAIN, 7, 3),
        ("edit", 6, 2),
    ]


async def test_a_branch_before_the_first_turn_is_empty_and_can_be_switched_to(store: SessionStore) -> None:
    await whole_turns(store, 2)
    branch = await store.branch(KEY, before="t1")
    assert (branch.since, branch.head, branch.turns) == (0, 0, 0)
    assert await join_texts(store) == ""
    await store.switch(KEY, MAIN)
    assert (await store.switch(KEY, branch.name)).current
    assert await store.turns(KEY) == []


async def test_a_branch_of_everything_goes_on_by_itself(store: SessionStore) -> None:
    await whole_turns(store, 2)
    assert (await store.branch(KEY)).since == 4
    await store.add_turn(Turn("t3", KEY), [user("u3")])
    assert await join_texts(store) == "u1 a1 u2 a2 u3"
    assert await join_texts(store, MAIN) == "u1 a1 u2 a2"


async def test_branches_without_a_name_get_different_ones(store: SessionStore) -> None:
    await whole_turns(store, 2)
    created = {(await store.branch(KEY)).name for _ in range(3)}
    created |= {branch.name for branch in await asyncio.gather(*[store.branch(KEY) for _ in range(3)])}
    assert len(created) == 6
    assert await names(store) == [MAIN, *sorted(created, key=lambda name: int(name.removeprefix("branch-")))]


async def test_a_name_is_given_once_and_a_refused_branch_changes_nothing(store: SessionStore) -> None:
    await whole_turns(store, 2)
    await store.branch(KEY, name="edit")
    before = await store.info(KEY)
    for name in (MAIN, "edit"):
        await assert_raises(Conflict, store.branch(KEY, before="t2", name=name))
    await assert_raises(TurnNotFound, store.branch(KEY, before="nowhere", name="other"))
    assert await store.info(KEY) == before
    assert await names(store) == [MAIN, "edit"]
    assert (await store.branch(KEY, before="t2", name="other")).since == 2


async def test_the_name_of_a_dropped_branch_is_not_given_again(store: SessionStore) -> None:
    await whole_turns(store, 1)
    await store.branch(KEY, name="dropped")
    await store.switch(KEY, MAIN)
    await store.drop_branch(KEY, "dropped")
    await store.branch(KEY, name="cleared")
    await store.clear(KEY)
    assert await names(store) == [MAIN]
    for name in ("dropped", "cleared"):
        await assert_raises(Conflict, store.branch(KEY, name=name))
    assert await names(store) == [MAIN]
    await store.delete(KEY)
    await store.create(KEY)
    assert (await store.branch(KEY, name="dropped")).current


@pytest.mark.parametrize("name", ["x" * 201, "a\nb", "\ud800", "a\0b"])
async def test_a_name_that_people_can_not_read_is_refused(store: SessionStore, name: str) -> None:
    await store.create(KEY)
    await assert_raises(InvalidRequest, store.branch(KEY, name=name))


async def test_a_turn_of_another_branch_is_not_found_on_this_one(store: SessionStore) -> None:
    await whole_turns(store, 3)
    await store.branch(KEY, before="t2", name="edit")
    await store.add_turn(Turn("t4", KEY), [user("u4")])
    await assert_raises(TurnNotFound, store.branch(KEY, before="t3"))
    await store.switch(KEY, MAIN)
    await assert_raises(TurnNotFound, store.branch(KEY, before="t4"))


async def test_what_is_not_there_is_said(store: SessionStore) -> None:
    await whole_turns(store, 1)
    nowhere = SessionKey("local", "nowhere")
    await assert_raises(BranchNotFound, store.switch(KEY, "no"), store.drop_branch(KEY, "no"))
    await assert_raises(
        SessionNotFound, store.branch(nowhere), store.switch(nowhere, MAIN), store.drop_branch(nowhere, MAIN)
    )
    assert await store.latest(KEY, branch="no") == []
    assert await store.turns(KEY, branch="no") == []
    assert await store.branches(nowhere) == []


async def test_the_tree_stays_as_it_is_while_a_turn_is_open(store: SessionStore, owner: Owner) -> None:
    await whole_turns(store, 2)
    await store.branch(KEY, before="t2", name="edit")
    talk = Talk(store, owner, KEY, await store.open_turn(Turn("t3", KEY), owner))
    await assert_raises(
        SessionBusy, store.switch(KEY, MAIN), store.branch(KEY), store.drop_branch(KEY, MAIN), store.pop(KEY)
    )
    await talk.say(user("u3"), calls("c"), result("c"))
    await talk.close()
    await store.switch(KEY, MAIN)
    assert await join_texts(store, "edit") == "u1 a1 u3  2"


async def test_a_turn_that_recovery_closes_stays_on_its_branch(store: SessionStore, clock: Clock) -> None:
    elsewhere = Owner("other", 1, boot="another-boot", machine="another-machine")
    await whole_turns(store, 2)
    await store.branch(KEY, before="t2", name="edit")
    talk = Talk(store, elsewhere, KEY, await store.open_turn(Turn("t3", KEY), elsewhere))
    await talk.say(user("u3"), calls("c"))
    clock.now += 1000
    [closed] = await store.recover()
    assert (await store.turns(KEY))[-1] == closed
    assert len(await store.latest(KEY)) == 5
    assert await join_texts(store, MAIN) == "u1 a1 u2 a2"


async def test_dropping_a_branch_takes_only_what_nobody_shares(store: SessionStore) -> None:
    await whole_turns(store, 2)
    await store.branch(KEY, before="t2", name="edit")
    await store.add_turn(Turn("t3", KEY), [user("u3", [PNG])])
    await assert_raises(Conflict, store.drop_branch(KEY, "edit"))
    await store.switch(KEY, MAIN)
    before = await join_texts(store)
    await store.drop_branch(KEY, "edit")
    assert await join_texts(store) == before
    assert await names(store) == [MAIN]
    assert await store.latest(KEY, branch="edit") == []
    assert await store.turn("local", "t3") is None
    assert await store.blob(KEY, PNG.hash) is None


async def test_dropping_a_branch_in_the_middle_of_the_tree_keeps_what_goes_through_it(store: SessionStore) -> None:
    await whole_turns(store, 2)
    await store.branch(KEY, before="t2", name="middle")
    for n in (3, 4):
        await store.add_turn(Turn(f"t{n}", KEY), [user(f"u{n}"), assistant(f"a{n}")])
    await store.branch(KEY, before="t4", name="leaf")
    await store.add_turn(Turn("t5", KEY), [user("u5")])
    await store.drop_branch(KEY, "middle")
    assert await join_texts(store) == "u1 a1 u3 a3 u5"
    assert [turn.id for turn in await store.turns(KEY)] == ["t1", "t3", "t5"]
    assert await store.turn("local", "t4") is None
    await store.drop_branch(KEY, MAIN)
    assert await join_texts(store) == "u1 a1 u3 a3 u5"
    turns, items = await store.everything(KEY)
    assert [turn.id for turn in turns] == ["t1", "t3", "t5"]
    assert [item.seq for item in items] == [1, 2, 5, 6, 9]


async def test_clearing_takes_every_branch(store: SessionStore) -> None:
    await whole_turns(store, 2)
    await store.branch(KEY, before="t2")
    await store.add_turn(Turn("t3", KEY), [user("u3", [PNG])])
    await store.clear(KEY)
    assert await store.everything(KEY) == ([], [])
    assert await current(store) == MAIN
    assert await store.blob(KEY, PNG.hash) is None
    await store.add_turn(Turn("t1", KEY), [user("anew")])
    assert await join_texts(store) == "anew"


# ------------------------------------------------------------------------------------ versions of a question (siblings)


async def test_siblings_are_the_versions_of_one_question(store: SessionStore) -> None:
    await whole_turns(store, 3)
    await store.branch(KEY, before="t2", name="edit")
    await store.add_turn(Turn("t4", KEY), [user("u4"), assistant("a4")])
    await store.branch(KEY, before="t4", name="again")
    await store.add_turn(Turn("t5", KEY), [user("u5")])
    versions = [("t2", MAIN), ("t4", "edit"), ("t5", "again")]
    for turn in ("t2", "t4", "t5"):
        assert await store.siblings(KEY, turn) == versions
    assert await store.siblings(KEY, "t1") == [("t1", MAIN)]
    assert await store.siblings(KEY, "t3") == [("t3", MAIN)]
    assert await store.siblings(KEY, "nowhere") == []


async def test_versions_of_the_first_question_are_siblings_too(store: SessionStore) -> None:
    await whole_turns(store, 1)
    await store.branch(KEY, before="t1", name="edit")
    await store.add_turn(Turn("t2", KEY), [user("u2")])
    assert await store.siblings(KEY, "t2") == [("t1", MAIN), ("t2", "edit")]


async def test_an_edit_of_an_edit_has_the_versions_of_its_own_place(store: SessionStore) -> None:
    await whole_turns(store, 2)
    await store.branch(KEY, before="t2", name="one")
    for n in (3, 4):
        await store.add_turn(Turn(f"t{n}", KEY), [user(f"u{n}")])
    await store.branch(KEY, before="t4", name="two")
    await store.add_turn(Turn("t5", KEY), [user("u5")])
    assert await store.siblings(KEY, "t5") == [("t4", "one"), ("t5", "two")]
    assert await store.siblings(KEY, "t3") == [("t2", MAIN), ("t3", "one")]
    await store.drop_branch(KEY, "one")
    assert await store.siblings(KEY, "t5") == [("t5", "two")]
    assert await store.siblings(KEY, "t3") == [("t2", MAIN), ("t3", "two")]


async def test_a_turn_that_said_nothing_is_no_version(store: SessionStore, owner: Owner) -> None:
    await whole_turns(store, 1)
    empty = await store.open_turn(Turn("empty", KEY), owner)
    await store.close_turn(empty, owner, "cancelled")
    await store.add_turn(Turn("t2", KEY), [user("u2")])
    assert await store.siblings(KEY, "t2") == [("t2", MAIN)]
    assert await store.siblings(KEY, "empty") == [("empty", MAIN), ("t2", MAIN)]


# ----------------------------------------------------------------------------------------------------- fork


async def test_a_fork_is_a_copy_of_the_first_turns(store: SessionStore) -> None:
    await whole_turns(store, 3, PNG)
    target = SessionKey("local", "copy")
    fork = await store.fork(KEY, target, 2)
    assert fork == await store.info(target)
    assert [item.message.text for item in await store.latest(target)] == ["u1", "a1", "u2", "a2"]
    assert [turn.id for turn in await store.turns(target)] == ["t1", "t2"]
    assert await store.blob(target, PNG.hash) == PNG.data
    await store.add_turn(Turn("t3", target), [user("on its own")])
    assert await join_texts(store) == "u1 a1 u2 a2 u3 a3"
    await store.delete(KEY)
    assert await store.blob(target, PNG.hash) == PNG.data


async def test_a_fork_of_a_branch_has_that_branch_only(store: SessionStore) -> None:
    await whole_turns(store, 3, PNG)
    await store.branch(KEY, before="t1", name="edit")
    await store.add_turn(Turn("t4", KEY), [user("u4")])
    await store.branch(KEY, name="deeper")
    await store.add_turn(Turn("t5", KEY), [user("u5")])
    target = SessionKey("other", "copy")
    await store.fork(KEY, target)
    assert [item.message.text for item in await store.latest(target)] == ["u4", "u5"]
    assert [branch.name for branch in await store.branches(target)] == [MAIN]
    assert await store.blob(target, PNG.hash) is None
    assert await store.siblings(target, "t4") == [("t4", MAIN)]


async def test_a_session_that_was_imported_stays_so_whatever_is_done_with_it(store: SessionStore) -> None:
    await whole_turns(store, 1)
    whole, target = await snapshot(store), SessionKey("local", "copy")
    assert whole.session.imported is None
    await store.delete(KEY)
    mark = {"id": "theirs", "sha256": "0" * 64}
    assert (await store.restore(replace(whole, session=replace(whole.session, imported=mark)), {})).imported == mark
    assert (await store.describe(KEY, SessionUpdate("title", ("tag",), {"note": 1}, {}))).imported == mark
    await store.fork(KEY, target, 1)
    await store.fork(target, SessionKey("local", "fork of the fork"), 0)
    for id in ("copy", "fork of the fork"):
        assert (await read_session(store, SessionKey("local", id))).imported == {"id": "theirs"}
    await store.clear(KEY)
    assert (await read_session(store)).imported == mark


async def test_a_fork_of_no_turns_is_empty_and_more_than_there_are_is_all(store: SessionStore) -> None:
    await whole_turns(store, 2)
    for id, count, expected in (("none", 0, 0), ("all", None, 4), ("more", 9, 4)):
        await store.fork(KEY, SessionKey("local", id), count)
        assert len(await store.latest(SessionKey("local", id))) == expected
    await assert_raises(InvalidRequest, store.fork(KEY, SessionKey("local", "negative"), -1))


async def test_a_fork_has_the_turns_that_ended_without_an_answer_and_not_the_running_one(
    store: SessionStore, owner: Owner
) -> None:
    await whole_turns(store, 1)
    stopped = Talk(store, owner, KEY, await store.open_turn(Turn("stopped", KEY), owner))
    await stopped.say(user("stop"), calls("c"))
    await stopped.close("cancelled")
    await store.add_turn(Turn("t2", KEY), [user("u2")])
    failed = await stopped.again("failed")
    await failed.close("failed")
    running = await failed.again("running")
    await running.say(user("not yet"))
    expected = {0: [], 1: ["t1"], 2: ["t1", "stopped", "t2"], None: ["t1", "stopped", "t2", "failed"]}
    for count, turns in expected.items():
        target = SessionKey("local", f"copy {count}")
        fork = await store.fork(KEY, target, count)
        assert [turn.id for turn in await store.turns(target)] == turns, count
        assert fork.turn_count == len(turns), count
    assert [turn.state for turn in await store.turns(target)] == ["committed", "cancelled", "committed", "failed"]
    assert [item.message.text for item in await store.latest(target)][:3] == ["u1", "a1", "stop"]
    await store.add_turn(Turn("t3", target), [user("u3")])
    assert [turn.id for turn in await store.turns(target)][-1] == "t3"


async def test_a_fork_continues_behind_a_stopped_turn_that_said_nothing(store: SessionStore, owner: Owner) -> None:
    await whole_turns(store, 2)
    await store.branch(KEY, before="t2", name="edit")
    empty = await store.open_turn(Turn("empty", KEY), owner)
    await store.close_turn(empty, owner, "cancelled")
    target = SessionKey("local", "copy")
    await store.fork(KEY, target)
    await store.add_turn(Turn("t3", target), [user("u3")])
    assert [turn.id for turn in await store.turns(target)] == ["t1", "empty", "t3"]


async def test_a_fork_overwrites_nothing(store: SessionStore) -> None:
    await whole_turns(store, 1)
    await store.create(SessionKey("local", "there"))
    await assert_raises(Conflict, store.fork(KEY, SessionKey("local", "there")))
    await assert_raises(SessionNotFound, store.fork(SessionKey("local", "nowhere"), SessionKey("local", "copy")))
    assert await store.info(SessionKey("local", "copy")) is None

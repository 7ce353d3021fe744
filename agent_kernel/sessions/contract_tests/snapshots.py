"""Tests of whole sessions (``whole``, ``restore``) and of replacing the outputs of tools (``clear_outputs``)."""

from __future__ import annotations

from dataclasses import replace

from agent_kernel.core.errors import Conflict, InvalidRequest, SessionBusy, SessionNotFound
from agent_kernel.core.messages import Media, Message, Text, assistant, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import MAIN, Owner, SessionKey, SessionQuery, SessionUpdate, Summary, Turn
from agent_kernel.core.session_tree import SessionSnapshot
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

COPY = SessionKey("elsewhere", "copy")
BYTES = {PNG.hash: PNG.data or b""}


async def add_branches(store: SessionStore, owner: Owner) -> SessionSnapshot:
    """Create a session with an image, a call, a summary, a description and two branches, and return its snapshot. The
    current branch ends with the message a2, the other branch ends with a3."""
    await store.create(KEY, "title")
    await store.describe(KEY, SessionUpdate(tags=("a", "b"), metadata={"n": 1}, context={"k": [1]}))
    await store.add_turn(Turn("t1", KEY, cell="c1"), [user("u1", [PNG]), calls("c"), result("c"), assistant("a1")])
    assert await store.claim_summary(KEY, owner)
    await store.add_summary(Summary(KEY, 4, "so far", "model", {"tokens": 3}, "asked"), owner)
    await store.add_turn(Turn("t2", KEY), [user("u2"), assistant("a2")])
    await store.branch(KEY, before="t2", name="other")
    await store.add_turn(Turn("t3", KEY), [user("u3"), assistant("a3")])
    await store.switch(KEY, MAIN)
    return await snapshot(store)


def copy_of(whole: SessionSnapshot, key: SessionKey = COPY) -> SessionSnapshot:
    """Return the snapshot with the key of another session."""
    return replace(
        whole,
        session=replace(whole.session, key=key),
        turns=tuple(replace(turn, key=key) for turn in whole.turns),
        summaries=tuple(replace(summary, key=key) for summary in whole.summaries),
    )


async def branch_texts(store: SessionStore, key: SessionKey, branch: str | None = None) -> list[str]:
    return [item.message.text for item in await store.latest(key, branch=branch)]


async def test_a_whole_session_has_all_branches_and_no_bytes(store: SessionStore, owner: Owner) -> None:
    whole = await add_branches(store, owner)
    assert whole.session == await store.info(KEY)
    assert (list(whole.turns), list(whole.items)) == await store.everything(KEY)
    assert list(whole.branches) == await store.branches(KEY)
    assert list(whole.summaries) == await store.summaries(KEY)
    for name in (MAIN, "other"):
        assert list(whole.select_branch(name)[1]) == await store.latest(KEY, branch=name)
    assert [medium.data for medium in whole.items[0].message.media] == [None]
    assert await store.whole(COPY) is None


async def test_a_restored_session_is_the_one_that_was_read(store: SessionStore, owner: Owner, clock: Clock) -> None:
    whole = await add_branches(store, owner)
    clock.now += 1000
    restored = await store.restore(copy_of(whole), BYTES)
    again = await snapshot(store, COPY)
    assert again.session == restored
    assert replace(again, summaries=()) == replace(copy_of(whole), summaries=())
    assert [replace(summary, id=0) for summary in again.summaries] == [
        replace(summary, id=0) for summary in copy_of(whole).summaries
    ]
    assert restored.accessed == clock.now
    assert await store.blob(COPY, PNG.hash) == PNG.data
    assert (await snapshot(store)) == whole


async def test_a_restored_session_goes_on_with_new_numbers(store: SessionStore, owner: Owner) -> None:
    whole = await add_branches(store, owner)
    await store.restore(copy_of(whole), BYTES)
    (item,) = await store.add_turn(Turn("t4", COPY), [user("u4")])
    assert item.seq == whole.session.head + 1
    assert (await branch_texts(store, COPY))[-2:] == ["a2", "u4"]
    await store.switch(COPY, "other")
    assert (await branch_texts(store, COPY))[-1] == "a3"
    await assert_raises(Conflict, store.add_turn(Turn("t3", COPY), [user("again")]))


async def test_a_restored_session_is_found_by_its_words(store: SessionStore, owner: Owner) -> None:
    await store.restore(copy_of(await add_branches(store, owner)), BYTES)
    assert [hit.session.key for hit in await store.search(COPY.namespace, SessionQuery("u1"))] == [COPY]


async def test_a_turn_that_was_open_must_be_closed_in_the_copy(store: SessionStore, talk: Talk) -> None:
    await talk.say(user("u1"))
    whole = copy_of(await snapshot(store))
    for over in (False, True):
        await assert_raises(InvalidRequest, store.restore(whole, {}, replace=over))
    assert await store.info(COPY) is None
    assert await store.recover() == []
    closed = tuple(replace(turn, state="interrupted") for turn in whole.turns)
    await store.restore(replace(whole, turns=closed), {})
    await store.add_turn(Turn("t2", COPY), [user("u2")])
    assert await talk.close(), "the copy does not take the lease of the session that was read"


async def test_a_session_is_not_restored_over_another_one(store: SessionStore, owner: Owner) -> None:
    whole = await add_branches(store, owner)
    await assert_raises(Conflict, store.restore(whole, BYTES))
    assert await snapshot(store) == whole


async def test_a_session_without_the_bytes_of_its_media_is_not_restored(store: SessionStore, owner: Owner) -> None:
    whole = copy_of(await add_branches(store, owner), SessionKey("nobody", "copy"))
    await assert_raises(InvalidRequest, store.restore(whole, {}))
    assert await store.info(whole.session.key) is None
    await assert_raises(InvalidRequest, store.restore(whole, {}, replace=True))
    assert await store.info(whole.session.key) is None


async def test_a_session_that_is_replaced_keeps_its_notebooks_and_nothing_else(
    store: SessionStore, owner: Owner
) -> None:
    whole = copy_of(await add_branches(store, owner), SessionKey(KEY.namespace, "copy"))
    key = whole.session.key
    await store.create(key)
    await store.bind(key.namespace, "/root", "a.ipynb", key.id)
    for number in range(20):
        await store.add_turn(Turn(f"old{number}", key), [user("old")])
    old = await read_session(store, key)
    replaced = await store.restore(whole, BYTES, replace=True)
    assert replaced.revision > old.revision
    assert await branch_texts(store, key) == await branch_texts(store, KEY)
    assert await branch_texts(store, key, "other") == await branch_texts(store, KEY, "other")
    assert await store.bound(key.namespace, "/root", "a.ipynb") == key.id
    assert await store.turn(key.namespace, "old0") is None


async def test_a_replacement_that_fails_changes_nothing(store: SessionStore, owner: Owner) -> None:
    whole = await add_branches(store, owner)
    other = Media.of("image/png", b"not stored")
    lacking = replace(whole.items[0], message=user("u1", [replace(other, data=None)]))
    await assert_raises(
        InvalidRequest, store.restore(replace(whole, items=(lacking, *whole.items[1:])), {}, replace=True)
    )
    assert await snapshot(store) == whole


async def test_replace_restores_a_session_that_does_not_exist(store: SessionStore, owner: Owner) -> None:
    whole = copy_of(await add_branches(store, owner))
    assert (await store.restore(whole, BYTES, replace=True)).revision == whole.session.revision


async def test_a_session_with_an_open_turn_is_not_replaced(store: SessionStore, owner: Owner) -> None:
    whole = await add_branches(store, owner)
    talk = Talk(store, owner, KEY, await store.open_turn(Turn("t4", KEY), owner))
    await assert_raises(SessionBusy, store.restore(whole, BYTES, replace=True))
    await talk.say(user("u4"))
    assert await talk.close()


def secret_result(id: str) -> Message:
    return Message("tool", (Text("secret"), PNG), call_id=id, name="python", status="success")


async def test_cleared_outputs_are_replaced_and_their_media_removed(store: SessionStore, clock: Clock) -> None:
    for turn in ("t1", "t2"):
        messages = [user("u"), calls(turn), secret_result(turn), assistant("a")]
        await store.add_turn(Turn(turn, KEY), messages)
    before = await read_session(store)
    clock.now += 5
    assert await store.clear_outputs(KEY, ["t1", "unknown"], "cleared") == 1
    assert await branch_texts(store, KEY) == ["u", "", "cleared", "a", "u", "", "secret", "a"]
    first, second = await store.turns(KEY)
    assert first.record["outputs_cleared"]
    assert "outputs_cleared" not in second.record
    cleared = (await store.latest(KEY))[2].message
    assert (cleared.media, cleared.call_id, cleared.name, cleared.status) == ((), "t1", "python", "success")
    assert await store.blob(KEY, PNG.hash) == PNG.data, "the other turn still refers to it"
    assert (await read_session(store)).revision > before.revision
    assert await store.clear_outputs(KEY, ["t1"], "cleared") == 0
    assert await store.clear_outputs(KEY, ["t2"], "cleared") == 1
    assert await store.blob(KEY, PNG.hash) is None


async def test_outputs_of_an_open_or_unknown_session_are_not_cleared(store: SessionStore, owner: Owner) -> None:
    await assert_raises(SessionNotFound, store.clear_outputs(KEY, ["t1"], "cleared"))
    await whole_turns(store, 1)
    await store.open_turn(Turn("t2", KEY), owner)
    await assert_raises(SessionBusy, store.clear_outputs(KEY, ["t1"], "cleared"))

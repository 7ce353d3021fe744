"""What the protocol promises of a session store, held against every store of the fixture ``store``.

Nothing here knows how a store keeps things: a store from elsewhere is held to it by its own ``store`` fixture, which
takes its time from the fixture ``clock``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_kernel.errors import (
    Conflict,
    InvalidRequest,
    LeaseLost,
    SequenceConflict,
    SessionBusy,
    SessionNotFound,
    StoreError,
)
from agent_kernel.messages import Media, Message, Text, ToolCall, Usage, assistant, user
from agent_kernel.sessions.model import LEASE_S, Owner, SessionKey, Turn
from agent_kernel.sessions.store import SessionStore
from tests.sessions.talk import KEY, Clock, Talk, calls, result

PNG = Media.of("image/png", b"\x89PNG" + bytes(2000))
ELSEWHERE = Owner("other", 1, boot="another-boot", machine="another-machine")
"""Nobody here can tell whether it lives: only its lease decides."""


# ------------------------------------------------------------------------------------------------- sessions


async def test_create_makes_a_session_once(store: SessionStore, clock: Clock) -> None:
    made = await store.create(KEY, "first")
    clock.now += 5
    assert await store.create(KEY, "second") == made == await store.info(KEY)
    assert (made.title, made.head, made.turns, made.created) == ("first", 0, 0, clock.now - 5)


async def test_an_unknown_session_is_none_and_has_no_history(store: SessionStore) -> None:
    assert await store.info(KEY) is None
    assert await store.latest(KEY) == []
    assert await store.turns(KEY) == []
    assert await store.blob(KEY, PNG.hash) is None


async def test_what_changes_a_session_must_find_it(store: SessionStore, owner: Owner) -> None:
    with pytest.raises(SessionNotFound):
        await store.rename(KEY, "title")
    with pytest.raises(SessionNotFound):
        await store.clear(KEY)
    with pytest.raises(SessionNotFound):
        await store.open_turn(Turn("t", KEY), owner)
    with pytest.raises(SessionNotFound):
        await store.bind("local", "/root", "a.ipynb", "s")


@pytest.mark.parametrize("id", ["x", "x" * 512, "日本語 🙂", "a:b/c'); DROP TABLE sessions;--", " ", "%", "a\\b"])
async def test_ids_are_taken_literally(store: SessionStore, owner: Owner, id: str) -> None:
    talk = await Talk.begin(store, owner, id=id, turn=id, namespace=id)
    await talk.say(user("hello"))
    assert await talk.texts() == ["hello"]
    assert [session.key.id for session in await store.list(id)] == [id]


@pytest.mark.parametrize("id", ["", "x" * 513, "a\0b", "a\nb", "\x7f", "\ud800"])
async def test_ids_that_no_store_takes(store: SessionStore, owner: Owner, id: str) -> None:
    with pytest.raises(InvalidRequest):
        SessionKey("local", id)
    with pytest.raises(InvalidRequest):
        SessionKey(id, "s")
    with pytest.raises(InvalidRequest):
        await store.list(id)
    await store.create(KEY)
    with pytest.raises(InvalidRequest):
        await store.open_turn(Turn(id, KEY), owner)


async def test_the_same_id_in_two_namespaces_is_two_sessions(store: SessionStore, owner: Owner) -> None:
    ann = await Talk.begin(store, owner, namespace="ann")
    bob = await Talk.begin(store, owner, namespace="bob")
    await ann.say(user("from ann", [PNG]))
    await bob.say(user("from bob"))
    assert await ann.texts() == ["from ann"]
    assert await bob.texts() == ["from bob"]
    assert await store.blob(bob.key, PNG.hash) is None
    await bob.close()
    assert await store.delete(bob.key)
    assert await ann.texts() == ["from ann"]
    assert [session.key for session in await store.list("ann")] == [ann.key]


async def test_a_namespace_and_an_id_never_run_together(store: SessionStore, owner: Owner) -> None:
    first = await Talk.begin(store, owner, namespace="a", id="b:c")
    await Talk.begin(store, owner, namespace="a:b", id="c")
    await first.say(user("hello"))
    assert await store.latest(SessionKey("a:b", "c")) == []


async def test_list_gives_the_most_recently_updated_first(store: SessionStore, owner: Owner, clock: Clock) -> None:
    for id in "abc":
        clock.now += 1
        await store.create(SessionKey("local", id))
    clock.now += 1
    await store.rename(SessionKey("local", "a"), "renamed")
    assert [session.key.id for session in await store.list("local")] == ["a", "c", "b"]
    assert [session.key.id for session in await store.list("local", 2)] == ["a", "c"]
    assert len(await store.list("local", None)) == 3
    assert await store.list("local", 0) == []
    with pytest.raises(InvalidRequest):
        await store.list("local", -1)


async def test_every_change_raises_the_revision_and_a_heartbeat_does_not(store: SessionStore, owner: Owner) -> None:
    seen = [(await store.create(KEY)).revision]

    async def grown() -> bool:
        session = await store.info(KEY)
        assert session is not None
        seen.append(session.revision)
        return seen[-1] > seen[-2]

    turn = await store.open_turn(Turn("t", KEY), owner)
    assert await grown()
    await store.append(turn, owner, [user("hello")], 0)
    assert await grown()
    await store.heartbeat(turn, owner)
    assert not await grown()
    await store.close_turn(turn, owner, "committed")
    assert await grown()
    await store.rename(KEY, "title")
    assert await grown()
    await store.clear(KEY)
    assert await grown()


async def test_clear_keeps_the_session_and_its_bindings(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    await store.bind("local", "/root", "a.ipynb", "s")
    await talk.say(user("hello", [PNG]))
    with pytest.raises(SessionBusy):
        await store.clear(KEY)
    await talk.close()
    await store.clear(KEY)
    session = await store.info(KEY)
    assert session is not None
    assert (session.head, session.turns) == (0, 0)
    assert await store.latest(KEY) == []
    assert await store.turns(KEY) == []
    assert await store.blob(KEY, PNG.hash) is None
    assert await store.bound("local", "/root", "a.ipynb") == "s"
    assert (await (await talk.again("t1")).say(user("anew")))[0].seq == 1


async def test_delete_takes_everything_of_the_session_with_it(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    await store.bind("local", "/root", "a.ipynb", "s")
    await talk.say(user("hello", [PNG]))
    with pytest.raises(SessionBusy):
        await store.delete(KEY)
    await talk.close()
    assert await store.delete(KEY)
    assert not await store.delete(KEY)
    assert await store.info(KEY) is None
    assert await store.bound("local", "/root", "a.ipynb") is None
    await store.create(KEY)
    assert await store.latest(KEY) == []
    assert await store.blob(KEY, PNG.hash) is None


# ---------------------------------------------------------------------------------------------------- turns


async def test_a_turn_comes_back_as_it_was_opened(store: SessionStore, owner: Owner, clock: Clock) -> None:
    await store.create(KEY)
    asked = Turn(
        "t", KEY, cell="c1", epoch="e1", where="live", model="m", opened=clock.now, record={"sampling": {"seed": 1}}
    )
    opened = await store.open_turn(asked, owner)
    assert opened == replace(asked, ordinal=1)
    clock.now += 3
    assert await store.close_turn(opened, owner, "committed", "stop", Usage(10, 5, 3, 0.5, 1.5))
    [closed] = await store.turns(KEY)
    assert closed == replace(
        opened, state="committed", reason="stop", closed=clock.now, usage=Usage(10, 5, 3, 0.5, 1.5).to_json()
    )


async def test_one_turn_of_a_session_is_open_at_a_time(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    with pytest.raises(SessionBusy) as busy:
        await store.open_turn(Turn("t2", KEY), owner)
    assert busy.value.details["turn"] == "t1"
    await Talk.begin(store, owner, id="another")
    await talk.close()
    assert (await store.open_turn(Turn("t2", KEY), owner)).ordinal == 2


async def test_a_turn_id_is_used_once_in_a_session(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    await talk.close()
    with pytest.raises(Conflict):
        await talk.again("t1")
    await Talk.begin(store, owner, id="another", turn="t1")


async def test_items_are_numbered_from_one_without_gaps(store: SessionStore, owner: Owner, clock: Clock) -> None:
    talk = await Talk.begin(store, owner)
    first = await talk.say(user("one"), assistant("two"))
    clock.now += 1
    second = await talk.say(user("three"))
    assert [(item.seq, item.turn, item.time) for item in first + second] == [
        (1, "t1", clock.now - 1),
        (2, "t1", clock.now - 1),
        (3, "t1", clock.now),
    ]
    assert await store.latest(KEY) == first + second
    assert await talk.head() == 3


async def test_an_append_behind_the_head_is_a_conflict_and_writes_nothing(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    await talk.say(user("one"))
    for wrong in (0, 2, -1):
        with pytest.raises(SequenceConflict) as conflict:
            await store.append(talk.turn, owner, [user("lost")], wrong)
        assert conflict.value.details["head"] == 1
    assert await talk.texts() == ["one"]


async def test_an_empty_append_is_nothing_but_needs_the_lease(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    before = await store.info(KEY)
    assert await store.append(talk.turn, owner, [], 0) == []
    assert await store.info(KEY) == before
    with pytest.raises(SequenceConflict):
        await store.append(talk.turn, owner, [], 1)
    await talk.close()
    with pytest.raises(LeaseLost):
        await store.append(talk.turn, owner, [], 0)


async def test_only_the_owner_writes_to_its_turn(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    stranger = replace(owner, instance="another")
    with pytest.raises(LeaseLost):
        await store.append(talk.turn, stranger, [user("no")], 0)
    assert not await store.heartbeat(talk.turn, stranger)
    assert not await store.close_turn(talk.turn, stranger, "committed")
    assert await store.heartbeat(talk.turn, owner)
    assert (await store.turns(KEY))[0].state == "open"
    assert await talk.texts() == []


async def test_a_closed_turn_takes_nothing_more(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    assert await talk.close("committed", "stop")
    assert not await talk.close("failed", "late")
    assert not await store.heartbeat(talk.turn, owner)
    with pytest.raises(LeaseLost):
        await talk.say(user("late"))
    [turn] = await store.turns(KEY)
    assert (turn.state, turn.reason) == ("committed", "stop")


async def test_an_unknown_turn_is_lost(store: SessionStore, owner: Owner) -> None:
    await store.create(KEY)
    unknown = Turn("nope", KEY)
    with pytest.raises(LeaseLost):
        await store.append(unknown, owner, [user("no")], 0)
    assert not await store.close_turn(unknown, owner, "committed")
    assert not await store.heartbeat(unknown, owner)
    assert not await store.close_turn(Turn("nope", SessionKey("local", "nowhere")), owner, "committed")


@pytest.mark.parametrize("state", ["open", "done", ""])
async def test_a_turn_closes_only_in_a_closed_state(store: SessionStore, owner: Owner, state: str) -> None:
    talk = await Talk.begin(store, owner)
    with pytest.raises(InvalidRequest):
        await talk.close(state)  # type: ignore[arg-type]  # what a caller without a type checker may pass
    assert await store.heartbeat(talk.turn, owner)


# ---------------------------------------------------------------------------------------------------- pairs


async def test_calls_and_results_are_stored_in_rounds(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    await talk.say(user("add"), calls("c0", "c1"))
    await talk.say(result("c1"))
    await talk.say(result("c0"), calls("c0"), result("c0"), assistant("4"))
    assert [item.message.role for item in await store.latest(KEY)] == [
        "user", "assistant", "tool", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "batch",
    [
        [result("c1")],
        [calls("c1"), result("c2")],
        [calls("c1"), result("c1"), result("c1")],
        [calls("c1"), assistant("too early")],
        [calls("c1"), user("too early")],
        [calls("c1"), calls("c2")],
        [calls("c1", "c1")],
        [calls("")],
        [Message("user", (Text("x"),), (ToolCall("c1", "python", {}),))],
        [calls("c1"), replace(result("c1"), calls=(ToolCall("c2", "python", {}),))],
        [calls("c1"), replace(result("c1"), call_id=None)],
    ],
)
async def test_a_batch_that_breaks_a_pair_is_refused_whole(
    store: SessionStore, owner: Owner, batch: list[Message]
) -> None:
    talk = await Talk.begin(store, owner)
    await talk.say(user("before"))
    with pytest.raises(InvalidRequest):
        await talk.say(user("start"), *batch)
    assert await talk.texts() == ["before"]
    await talk.say(calls("c1"), result("c1"), assistant("fine"))
    await talk.close()
    assert len(await store.latest(KEY)) == 4


async def test_an_unanswered_call_bars_the_next_append_too(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    await talk.say(user("add"), calls("c1", "c2"))
    await talk.say(result("c1"))
    with pytest.raises(InvalidRequest):
        await talk.say(result("c1"))
    with pytest.raises(InvalidRequest):
        await talk.say(user("hidden", hidden=True))
    await talk.say(result("c2"), assistant("done"))


async def test_closing_answers_every_unanswered_call(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    await talk.say(user("add"), calls("c1", "c2", "c3"), result("c2"))
    assert await talk.close("cancelled", "You stopped the turn.")
    answers = [item.message for item in await store.latest(KEY)][3:]
    assert [(m.call_id, m.name, m.status, m.text) for m in answers] == [
        ("c1", "python", "interrupted", "You stopped the turn."),
        ("c3", "python", "interrupted", "You stopped the turn."),
    ]
    assert await talk.head() == 5


async def test_a_call_answered_by_closing_is_not_empty(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    await talk.say(calls("c1"))
    await talk.close("failed")
    assert (await talk.texts())[-1]


async def test_a_turn_does_not_inherit_calls_of_another(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    await talk.say(calls("c1"))
    await talk.close("cancelled")
    with pytest.raises(InvalidRequest):
        await (await talk.again("t2")).say(result("c1"))


@pytest.mark.parametrize(
    "message",
    [
        Message("developer", (Text("x"),)),  # type: ignore[arg-type]  # what a caller without a type checker may pass
        assistant("", [ToolCall("c1", "python", {"x": float("nan")})]),
        assistant("", [ToolCall("c1", "python", {"x": b"bytes"})]),
        assistant("", [ToolCall("c1", "python", {"x": object()})]),
    ],
)
async def test_what_json_can_not_hold_is_refused_whole(store: SessionStore, owner: Owner, message: Message) -> None:
    talk = await Talk.begin(store, owner)
    with pytest.raises(InvalidRequest):
        await talk.say(user("before"), message)
    assert await talk.texts() == []


async def test_arguments_that_contain_themselves_are_refused(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    endless: dict[str, object] = {}
    endless["again"] = endless
    with pytest.raises(InvalidRequest):
        await talk.say(assistant("", [ToolCall("c1", "python", endless)]))


@pytest.mark.parametrize(
    "text", ["日本語", "🙂", "Привет", "O'Reilly", "'); DROP TABLE items;--", "a\0b", "\ud800", "\r\n\t"]
)
async def test_any_text_comes_back_as_it_was(store: SessionStore, owner: Owner, text: str) -> None:
    talk = await Talk.begin(store, owner)
    said = [
        user(text),
        replace(assistant(text, [ToolCall("c", text, {text: [text]})]), reasoning=text),
        result("c", text),
    ]
    await talk.say(*said)
    assert [item.message for item in await store.latest(KEY)] == said


async def test_a_store_keeps_its_own_copy(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    arguments = {"list": [1]}
    await talk.say(assistant("", [ToolCall("c", "python", arguments)]))
    arguments["list"].append(2)
    [item] = await store.latest(KEY)
    assert item.message.calls[0].arguments == {"list": [1]}


# -------------------------------------------------------------------------------------------------- history


async def test_latest_gives_the_newest_in_order(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    await talk.say(*[user(str(n)) for n in range(6)])
    assert await talk.texts() == list("012345")
    assert await talk.texts(2) == ["4", "5"]
    assert await talk.texts(10) == list("012345")
    assert await talk.texts(0) == []
    for method in (store.latest, store.turns):
        with pytest.raises(InvalidRequest):
            await method(KEY, -1)


async def test_a_limit_never_starts_inside_a_pair(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    await talk.say(user("add"), calls("a", "b"), result("a"), result("b"), assistant("4"))
    assert [len(await store.latest(KEY, limit)) for limit in range(6)] == [0, 1, 1, 1, 4, 5]


async def test_items_of_failed_turns_are_left_out_on_request(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    await talk.say(user("kept"))
    await talk.close("cancelled")
    talk = await talk.again("t2")
    await talk.say(user("failed"))
    assert await talk.texts(failed=False) == ["kept", "failed"]
    await talk.close("failed")
    talk = await talk.again("t3")
    await talk.say(user("open"))
    assert await talk.texts() == ["kept", "failed", "open"]
    assert await talk.texts(2, failed=False) == ["kept", "open"]


async def test_turns_come_newest_last(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    for id in ("t2", "t3"):
        await talk.close()
        talk = await talk.again(id)
    assert [turn.id for turn in await store.turns(KEY)] == ["t1", "t2", "t3"]
    assert [turn.id for turn in await store.turns(KEY, 2)] == ["t2", "t3"]
    assert await store.turns(KEY, 0) == []


# ---------------------------------------------------------------------------------------------------- media


async def test_media_come_without_data_and_by_hash(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    [item] = await talk.say(user("look", [PNG]))
    [read] = await store.latest(KEY)
    assert item == read
    assert read.message.media == (PNG,)
    assert read.message.media[0].data is None
    assert await store.blob(KEY, PNG.hash) == PNG.data
    assert await store.blob(KEY, "0" * 64) is None


async def test_a_blob_goes_with_the_last_session_that_names_it(store: SessionStore, owner: Owner) -> None:
    first, second = await Talk.begin(store, owner, id="a"), await Talk.begin(store, owner, id="b")
    for talk in (first, second):
        await talk.say(user("look", [PNG]), user("again", [PNG]))
        await talk.close()
    await store.delete(first.key)
    assert await store.blob(first.key, PNG.hash) is None
    assert await store.blob(second.key, PNG.hash) == PNG.data
    await store.clear(second.key)
    assert await store.blob(second.key, PNG.hash) is None


async def test_naming_a_hash_opens_no_other_session(store: SessionStore, owner: Owner) -> None:
    mine, other = await Talk.begin(store, owner, id="a"), await Talk.begin(store, owner, id="b")
    await mine.say(user("look", [PNG]))
    named = replace(PNG, data=None)
    with pytest.raises(InvalidRequest):
        await other.say(user("mine now", [named]))
    assert await store.blob(other.key, PNG.hash) is None
    await mine.say(user("it is here already", [named]))


@pytest.mark.parametrize("wrong", [replace(PNG, data=b"other"), replace(PNG, size=3), replace(PNG, hash="0" * 64)])
async def test_bytes_must_match_their_hash(store: SessionStore, owner: Owner, wrong: Media) -> None:
    talk = await Talk.begin(store, owner)
    with pytest.raises(InvalidRequest):
        await talk.say(user("look", [wrong]))
    assert await talk.head() == 0


async def test_a_refused_batch_leaves_no_blob(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    with pytest.raises(InvalidRequest):
        await talk.say(user("look", [PNG]), result("none"))
    with pytest.raises(InvalidRequest):
        await talk.say(user("by hash", [replace(PNG, data=None)]))


# ------------------------------------------------------------------------------------------------- recovery


async def test_recovery_waits_for_the_lease_of_an_owner_it_can_not_judge(store: SessionStore, clock: Clock) -> None:
    talk = await Talk.begin(store, ELSEWHERE)
    await talk.say(user("add"), calls("c1"))
    clock.now += LEASE_S - 1
    assert await store.recover() == []
    assert await store.heartbeat(talk.turn, ELSEWHERE)
    clock.now += LEASE_S - 1
    assert await store.recover() == []
    clock.now += 1
    [closed] = await store.recover()
    assert (closed.id, closed.state, closed.closed) == ("t1", "interrupted", clock.now)
    assert await store.turns(KEY) == [closed]
    last = (await store.latest(KEY))[-1].message
    assert (last.call_id, last.status, last.text) == ("c1", "interrupted", closed.reason)
    assert await store.recover() == []


async def test_a_server_that_lost_its_lease_writes_nothing_more(store: SessionStore, clock: Clock) -> None:
    talk = await Talk.begin(store, ELSEWHERE)
    clock.now += LEASE_S
    await store.recover()
    with pytest.raises(LeaseLost):
        await talk.say(user("late"))
    assert not await talk.close()
    assert not await store.heartbeat(talk.turn, ELSEWHERE)
    assert await talk.head() == 0


async def test_an_append_keeps_the_lease(store: SessionStore, clock: Clock) -> None:
    talk = await Talk.begin(store, ELSEWHERE)
    clock.now += LEASE_S - 1
    await talk.say(user("still here"))
    clock.now += LEASE_S - 1
    assert await store.recover() == []


async def test_recovery_leaves_a_living_owner_alone(store: SessionStore, owner: Owner) -> None:
    talk = await Talk.begin(store, owner)
    assert await store.recover() == []
    await talk.say(user("still here"))


# ------------------------------------------------------------------------------------------------- bindings


async def test_a_binding_is_of_a_namespace_a_root_and_a_path(store: SessionStore) -> None:
    for namespace in ("ann", "bob"):
        for id in ("one", "two"):
            await store.create(SessionKey(namespace, id))
    await store.bind("ann", "/r1", "Untitled.ipynb", "one")
    await store.bind("ann", "/r2", "Untitled.ipynb", "two")
    await store.bind("bob", "/r1", "Untitled.ipynb", "two")
    assert await store.bound("ann", "/r1", "Untitled.ipynb") == "one"
    assert await store.bound("ann", "/r2", "Untitled.ipynb") == "two"
    assert await store.bound("bob", "/r1", "Untitled.ipynb") == "two"
    assert await store.bound("bob", "/r2", "Untitled.ipynb") is None
    await store.bind("ann", "/r1", "Untitled.ipynb", "two")
    assert await store.bound("ann", "/r1", "Untitled.ipynb") == "two"


async def bound_to(store: SessionStore, *places: str) -> None:
    await store.create(KEY)
    for place in places:
        await store.bind("local", "/r", place, "s")


async def test_moving_a_file_moves_its_binding(store: SessionStore) -> None:
    await bound_to(store, "a.ipynb", "a.ipynb.bak")
    assert await store.move("/r", "a.ipynb", "x/b.ipynb") == 1
    assert await store.paths("/r", KEY) == ["a.ipynb.bak", "x/b.ipynb"]
    assert await store.move("/r", "a.ipynb", "c.ipynb") == 0
    assert await store.move("/other", "x/b.ipynb", "c.ipynb") == 0


async def test_moving_a_directory_moves_what_is_inside_and_nothing_beside_it(store: SessionStore) -> None:
    await bound_to(store, "a/b/1", "a/b/c/2", "a/bc/3", "a/b", "a/B/4", "a/%/5", "a/_b/6")
    assert await store.move("/r", "a/b", "z") == 3
    assert await store.paths("/r", KEY) == ["a/%/5", "a/B/4", "a/_b/6", "a/bc/3", "z", "z/1", "z/c/2"]
    assert await store.move("/r", "a/%", "y") == 1


async def test_a_move_replaces_what_was_bound_there(store: SessionStore) -> None:
    await bound_to(store, "old")
    await store.create(SessionKey("local", "t"))
    await store.bind("local", "/r", "new", "t")
    assert await store.move("/r", "old", "new") == 1
    assert await store.bound("local", "/r", "new") == "s"
    assert await store.paths("/r", SessionKey("local", "t")) == []


async def test_a_move_into_a_longer_or_the_same_path_loses_nothing(store: SessionStore) -> None:
    await bound_to(store, "a/1", "a/2")
    assert await store.move("/r", "a", "a/a") == 2
    assert await store.move("/r", "a", "a") == 2
    assert await store.paths("/r", KEY) == ["a/a/1", "a/a/2"]


async def test_a_move_holds_in_every_namespace(store: SessionStore) -> None:
    for namespace in ("ann", "bob"):
        await store.create(SessionKey(namespace, "s"))
        await store.bind(namespace, "/r", "a", "s")
    assert await store.move("/r", "a", "b") == 2
    assert await store.bound("ann", "/r", "b") == await store.bound("bob", "/r", "b") == "s"


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 4097, "\ud800"])
async def test_a_path_that_no_file_has_is_refused(store: SessionStore, path: str) -> None:
    await store.create(KEY)
    with pytest.raises(InvalidRequest):
        await store.bind("local", "/r", path, "s")
    with pytest.raises(InvalidRequest):
        await store.move("/r", path, "new")


# ---------------------------------------------------------------------------------------------------- close


async def test_a_closed_store_says_so(store: SessionStore, owner: Owner) -> None:
    await store.create(KEY)
    await store.aclose()
    await store.aclose()
    for call in (
        store.create(KEY),
        store.info(KEY),
        store.list("local"),
        store.delete(KEY),
        store.open_turn(Turn("t", KEY), owner),
        store.append(Turn("t", KEY), owner, [], 0),
        store.recover(),
        store.latest(KEY),
        store.bound("local", "/r", "a"),
        store.move("/r", "a", "b"),
        store.paths("/r", KEY),
    ):
        with pytest.raises(StoreError, match="closed"):
            await call

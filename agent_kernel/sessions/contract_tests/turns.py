"""Tests of turns: only one is open at a time, items stay in order, only the owner can write, and a turn whose owner is
dead is closed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_kernel.core.errors import Conflict, InvalidRequest, LeaseLost, SequenceConflict, SessionBusy
from agent_kernel.core.messages import Message, Text, ToolCall, Usage, assistant, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import LEASE_S, Owner, SessionKey, Turn
from agent_kernel.sessions.contract_tests.fixtures import ELSEWHERE, KEY, Clock, Talk, assert_raises, calls, result


async def test_a_turn_comes_back_as_it_was_opened(store: SessionStore, owner: Owner, clock: Clock) -> None:
    await store.create(KEY)
    turn = Turn(
        "t", KEY, cell="c1", epoch="e1", where="live", model="m", opened=clock.now, record={"sampling": {"seed": 1}}
    )
    opened = await store.open_turn(turn, owner)
    assert opened == replace(turn, ordinal=1)
    clock.now += 3
    assert await store.close_turn(opened, owner, "committed", "stop", Usage(10, 5, 3, 0.5, 1.5))
    [closed] = await store.turns(KEY)
    assert closed == replace(
        opened, state="committed", reason="stop", closed=clock.now, usage=Usage(10, 5, 3, 0.5, 1.5).to_json()
    )


async def test_one_turn_of_a_session_is_open_at_a_time(store: SessionStore, talk: Talk, owner: Owner) -> None:
    with pytest.raises(SessionBusy) as busy:
        await store.open_turn(Turn("t2", KEY), owner)
    assert busy.value.details["turn"] == "t1"
    await Talk.begin(store, owner, id="another")
    await talk.close()
    assert (await store.open_turn(Turn("t2", KEY), owner)).ordinal == 2


async def test_a_turn_id_is_used_once_in_a_session(store: SessionStore, talk: Talk, owner: Owner) -> None:
    await talk.close()
    await assert_raises(Conflict, talk.again("t1"))
    await Talk.begin(store, owner, id="another", turn="t1")


async def test_items_are_numbered_from_one_without_gaps(store: SessionStore, talk: Talk, clock: Clock) -> None:
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


async def test_an_append_behind_the_head_is_a_conflict_and_writes_nothing(
    store: SessionStore, talk: Talk, owner: Owner
) -> None:
    await talk.say(user("one"))
    for wrong in (0, 2, -1):
        with pytest.raises(SequenceConflict) as conflict:
            await store.append(talk.turn, owner, [user("lost")], wrong)
        assert conflict.value.details["head"] == 1
    assert await talk.texts() == ["one"]


async def test_an_empty_append_is_nothing_but_needs_the_lease(store: SessionStore, talk: Talk, owner: Owner) -> None:
    before = await store.info(KEY)
    assert await store.append(talk.turn, owner, [], 0) == []
    assert await store.info(KEY) == before
    await assert_raises(SequenceConflict, store.append(talk.turn, owner, [], 1))
    await talk.close()
    await assert_raises(LeaseLost, store.append(talk.turn, owner, [], 0))


async def test_only_the_owner_writes_to_its_turn(store: SessionStore, talk: Talk, owner: Owner) -> None:
    stranger = replace(owner, instance="another")
    await assert_raises(LeaseLost, store.append(talk.turn, stranger, [user("no")], 0))
    assert not await store.heartbeat(talk.turn, stranger)
    assert not await store.close_turn(talk.turn, stranger, "committed")
    assert await store.heartbeat(talk.turn, owner)
    assert (await store.turns(KEY))[0].state == "open"
    assert await talk.texts() == []


async def test_a_closed_turn_takes_nothing_more(store: SessionStore, talk: Talk, owner: Owner) -> None:
    assert await talk.close("committed", "stop")
    assert not await talk.close("failed", "late")
    assert not await store.heartbeat(talk.turn, owner)
    await assert_raises(LeaseLost, talk.say(user("late")))
    [turn] = await store.turns(KEY)
    assert (turn.state, turn.reason) == ("committed", "stop")


async def test_an_unknown_turn_is_lost(store: SessionStore, owner: Owner) -> None:
    await store.create(KEY)
    unknown = Turn("nope", KEY)
    await assert_raises(LeaseLost, store.append(unknown, owner, [user("no")], 0))
    assert not await store.close_turn(unknown, owner, "committed")
    assert not await store.heartbeat(unknown, owner)
    assert not await store.close_turn(Turn("nope", SessionKey("local", "nowhere")), owner, "committed")


@pytest.mark.parametrize("state", ["open", "done", ""])
async def test_a_turn_closes_only_in_a_closed_state(store: SessionStore, talk: Talk, owner: Owner, state: str) -> None:
    with pytest.raises(InvalidRequest):
        await talk.close(state)  # type: ignore[arg-type]  # what a caller without a type checker may pass
    assert await store.heartbeat(talk.turn, owner)


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
    await assert_raises(LeaseLost, talk.say(user("late")))
    assert not await talk.close()
    assert not await store.heartbeat(talk.turn, ELSEWHERE)
    assert await talk.head() == 0


async def test_an_append_keeps_the_lease(store: SessionStore, clock: Clock) -> None:
    talk = await Talk.begin(store, ELSEWHERE)
    clock.now += LEASE_S - 1
    await talk.say(user("still here"))
    clock.now += LEASE_S - 1
    assert await store.recover() == []


async def test_recovery_leaves_a_living_owner_alone(store: SessionStore, talk: Talk) -> None:
    assert await store.recover() == []
    await talk.say(user("still here"))


# Tests of items: a call and its result form one pair, and every text is returned unchanged.


async def test_calls_and_results_are_stored_in_rounds(store: SessionStore, talk: Talk) -> None:
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
    store: SessionStore, talk: Talk, batch: list[Message]
) -> None:
    await talk.say(user("before"))
    await assert_raises(InvalidRequest, talk.say(user("start"), *batch))
    assert await talk.texts() == ["before"]
    await talk.say(calls("c1"), result("c1"), assistant("fine"))
    await talk.close()
    assert len(await store.latest(KEY)) == 4


async def test_an_unanswered_call_bars_the_next_append_too(talk: Talk) -> None:
    await talk.say(user("add"), calls("c1", "c2"))
    await talk.say(result("c1"))
    await assert_raises(InvalidRequest, talk.say(result("c1")))
    await assert_raises(InvalidRequest, talk.say(user("hidden", hidden=True)))
    await talk.say(result("c2"), assistant("done"))


async def test_closing_answers_every_unanswered_call(store: SessionStore, talk: Talk) -> None:
    await talk.say(user("add"), calls("c1", "c2", "c3"), result("c2"))
    assert await talk.close("cancelled", "You stopped the turn.")
    answers = [item.message for item in await store.latest(KEY)][3:]
    assert [(m.call_id, m.name, m.status, m.text) for m in answers] == [
        ("c1", "python", "interrupted", "You stopped the turn."),
        ("c3", "python", "interrupted", "You stopped the turn."),
    ]
    assert await talk.head() == 5


async def test_a_call_answered_by_closing_is_not_empty(talk: Talk) -> None:
    await talk.say(calls("c1"))
    await talk.close("failed")
    assert (await talk.texts())[-1]


async def test_a_turn_does_not_inherit_calls_of_another(talk: Talk) -> None:
    await talk.say(calls("c1"))
    await talk.close("cancelled")
    await assert_raises(InvalidRequest, (await talk.again("t2")).say(result("c1")))


@pytest.mark.parametrize(
    "message",
    [
        Message("developer", (Text("x"),)),  # type: ignore[arg-type]  # what a caller without a type checker may pass
        assistant("", [ToolCall("c1", "python", {"x": float("nan")})]),
        assistant("", [ToolCall("c1", "python", {"x": b"bytes"})]),
        assistant("", [ToolCall("c1", "python", {"x": object()})]),
    ],
)
async def test_what_json_can_not_hold_is_refused_whole(talk: Talk, message: Message) -> None:
    await assert_raises(InvalidRequest, talk.say(user("before"), message))
    assert await talk.texts() == []


async def test_arguments_that_contain_themselves_are_refused(talk: Talk) -> None:
    endless: dict[str, object] = {}
    endless["again"] = endless
    await assert_raises(InvalidRequest, talk.say(assistant("", [ToolCall("c1", "python", endless)])))


@pytest.mark.parametrize(
    "text", ["日本語", "🙂", "Привет", "O'Reilly", "'); DROP TABLE items;--", "a\0b", "\ud800", "\r\n\t"]
)
async def test_any_text_comes_back_as_it_was(store: SessionStore, talk: Talk, text: str) -> None:
    messages = [
        user(text),
        replace(assistant(text, [ToolCall("c", text, {text: [text]})]), reasoning=text),
        result("c", text),
    ]
    await talk.say(*messages)
    assert [item.message for item in await store.latest(KEY)] == messages


async def test_a_store_keeps_its_own_copy(store: SessionStore, talk: Talk) -> None:
    arguments = {"list": [1]}
    await talk.say(assistant("", [ToolCall("c", "python", arguments)]))
    arguments["list"].append(2)
    [item] = await store.latest(KEY)
    assert item.message.calls[0].arguments == {"list": [1]}

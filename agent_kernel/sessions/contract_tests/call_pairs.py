"""Tests of items: a call and its result form one pair, and every text is returned unchanged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message, Text, ToolCall, assistant, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.sessions.contract_tests.fixtures import KEY, Talk, assert_raises, calls, result


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

"""Tests that messages survive the conversion to JSON text without loss."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message, Text, ToolCall, assistant, parse_arguments
from agent_kernel.sessions import serialization
from tests.sessions.strategies import messages, rounds


@given(rounds())
def test_messages_survive_their_json(messages: list[Message]) -> None:
    for message in messages:
        assert Message.from_json(json.loads(json.dumps(message.to_json()))) == message
        assert serialization.decode(serialization.encode(message)) == message


@given(messages)
def test_stored_text_is_utf8(message: Message) -> None:
    serialization.encode(message).encode()


def test_texts_side_by_side_are_joined_and_empty_ones_dropped() -> None:
    assert serialization.decode(serialization.encode(Message("user", (Text("a"), Text(""), Text("b"))))).parts == (
        Text("ab"),
    )


def test_arguments_as_deep_as_the_limit_are_stored_and_deeper_ones_refused() -> None:
    value: object = 0
    for _ in range(serialization.MAX_DEPTH - 10):
        value = [value]
    said = assistant("", [ToolCall("c", "python", {"x": value})])
    assert serialization.decode(serialization.encode(said)) == said
    for _ in range(5000):
        value = [value]
    with pytest.raises(InvalidRequest, match="levels"):
        serialization.encode(assistant("", [ToolCall("c", "python", {"x": value})]))


@pytest.mark.parametrize(
    "raw",
    ['{"x": NaN}', '{"x": -Infinity}', '{"x": 1e999}', "[" * 100_000, '{"a":' * 500 + "1" + "}" * 500, "[1]", "x = 1"],
)
def test_whatever_arguments_a_model_writes_can_be_stored(raw: str) -> None:
    said = assistant("", [ToolCall("c", "python", parse_arguments(raw))])
    assert said.calls[0].arguments == {"_raw": raw}
    assert serialization.decode(serialization.encode(said)) == said

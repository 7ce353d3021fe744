"""Tests that every kind of item is restored as it was, and what our models see of a history of items."""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core.messages import Message, assistant, user
from agent_kernel.sessions import serialization
from agent_kernel.sessions.export import responses_items

TEXTS = st.one_of(
    st.text(max_size=20),
    st.just("media:" + "0" * 64),
    st.binary(min_size=250, max_size=300).map(lambda data: f"data:image/png;base64,{base64.b64encode(data).decode()}"),
)
PARTS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"type": st.sampled_from(["input_text", "output_text", "input_image", "refusal", "x"])},
    optional={"text": st.one_of(TEXTS, st.none()), "image_url": TEXTS, "refusal": TEXTS, "annotations": st.just([])},
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
ITEMS = st.one_of(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "developer", "tool"])},
        optional={
            "content": st.one_of(TEXTS, st.none(), st.lists(PARTS, max_size=3)),
            "type": st.sampled_from(["message", "reasoning"]),
            "id": TEXTS,
        },
    ),
    st.dictionaries(st.sampled_from(["type", "role", "content", "output", "item", "text", "media"]), JSON, max_size=4),
)


@settings(max_examples=150)
@given(item=ITEMS)
def test_an_item_comes_back_as_it_was(item: dict[str, Any]) -> None:
    said = responses_items.message_of(item)
    blobs = {medium.hash: medium.data or b"" for medium in said.media}
    kept = serialization.decode(serialization.encode(said))
    back = responses_items.item_of(kept, blobs)
    assert (back if back is not None else {"role": kept.role, "content": kept.text}) == json.loads(json.dumps(item))


@settings(max_examples=100)
@given(form=JSON, role=st.sampled_from(["user", "assistant"]), hidden=st.booleans())
def test_whatever_an_import_brings_as_an_item_does_not_break_a_reader(form: Any, role: Any, hidden: bool) -> None:
    said = Message(role, extra={responses_items.SHAPE: form}, hidden=hidden)
    responses_items.item_of(said)
    responses_items.to_model_history([user("a"), said])


def item(kind: str, id: str, **more: Any) -> Message:
    return responses_items.message_of({"type": kind, "call_id": id, **more})


def call(id: str) -> Message:
    return item("function_call", id, name="f", arguments='{"x": 1}')


def output(id: str) -> Message:
    return item("function_call_output", id, output=f"of {id}")


def describe_messages(messages: list[Message]) -> list[str]:
    return [
        f"{message.role} {message.text}".strip() + "".join(f" {call.id}" for call in message.calls)
        for message in responses_items.to_model_history(messages)
    ]


def test_complete_pairs_become_calls_and_results() -> None:
    said = [user("u"), call("1"), call("2"), output("1"), output("2"), call("3"), output("3"), assistant("a")]
    assert describe_messages(said) == [
        "user u",
        "assistant 1 2",
        "tool of 1",
        "tool of 2",
        "assistant 3",
        "tool of 3",
        "assistant a",
    ]


def test_half_pairs_reasoning_and_instructions_are_left_out() -> None:
    told_to = responses_items.message_of({"role": "developer", "content": "d"})
    said = [told_to, user("u"), item("reasoning", "r"), call("1"), output("2"), assistant("a")]
    assert describe_messages(said) == ["user u", "assistant a"]


def test_an_answer_that_came_later_stands_with_its_call() -> None:
    said = [user("u"), assistant("I ask"), call("1"), user("meanwhile"), output("1"), assistant("a")]
    assert describe_messages(said) == ["user u", "assistant I ask 1", "tool of 1", "user meanwhile", "assistant a"]

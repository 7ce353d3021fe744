"""Tests how input items of a response become messages and stored items."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from agent_kernel.core.errors import RequestTooLarge
from agent_kernel.core.messages import Media, Message, Text, assistant
from jupyter_ext.api.dialects import openai_content
from jupyter_ext.api.dialects.openai_content import MAX_TEXT
from jupyter_ext.api.responses import input_messages
from jupyter_ext.api.responses.input_items import FetchedInput
from jupyter_ext.api.responses.input_messages import Reading, items_to_store, messages_of, with_files
from jupyter_ext.turns.dialect_request import SubmittedFile
from tests.jupyter_ext.api.responses.response_requests import (
    body,
    describe_messages,
    messages_from,
    refusal_of,
    turn_request,
)

ITEM: TypeAdapter[Any] = TypeAdapter(ResponseItem)
PNG = bytes.fromhex("89504e470d0a1a0a")


def test_a_text_is_what_the_user_says() -> None:
    it = turn_request(instructions="Be kind.")
    assert [(message.role, message.text) for message in it.request.messages] == [
        ("system", "Be kind."),
        ("user", "Hi."),
    ]
    assert (it.continuable, it.streams, it.server_tools, it.route) == (True, False, (), "responses")


def test_texts_of_a_message_are_joined_with_an_empty_line_between_them() -> None:
    parts = [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]
    (developer, user) = messages_from({"role": "developer", "content": parts}, {"role": "user", "content": "x"})
    assert (developer.role, developer.text, user.text) == ("system", "one\n\ntwo", "x")


def test_a_picture_stands_between_the_texts_around_it() -> None:
    url = "data:image/png;base64,iVBORw0KGgo="
    parts = [
        {"type": "input_text", "text": "one"},
        {"type": "input_image", "image_url": url},
        {"type": "input_image", "image_url": "https://a.org/x.png"},
        {"type": "input_image", "file_id": "file-1"},
        {"type": "input_text", "text": "two"},
    ]
    other = Media.of("image/png", PNG + b"x")
    brought = FetchedInput({"https://a.org/x.png": other, "file-1": other})
    (message,) = messages_from({"role": "user", "content": parts}, brought=brought)
    assert message.parts == (Text("one"), Media.of("image/png", PNG), other, other, Text("two"))


def test_calls_belong_to_the_answer_before_them_and_reasoning_says_nothing() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    messages = messages_from(
        {"role": "user", "content": "go"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I ask."}]},
        call,
        {**call, "call_id": "c2", "namespace": "ns"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
    )
    assert describe_messages(messages) == [
        ("user", "go", []),
        ("assistant", "I ask.", ["f", "ns.f"]),
        ("tool", "1", []),
        ("tool", "2", []),
    ]
    assert [message.name for message in messages[2:]] == ["f", "ns.f"]


def test_the_text_of_an_answer_may_follow_its_calls() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    messages = messages_from(
        {"role": "user", "content": "go"},
        call,
        {**call, "call_id": "c2"},
        {"role": "assistant", "content": "I ask."},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": "2"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "and now"},
    )
    assert describe_messages(messages) == [
        ("user", "go", []),
        ("assistant", "I ask.", ["f", "f"]),
        ("tool", "1", []),
        ("tool", "2", []),
        ("assistant", "Done.", []),
        ("user", "and now", []),
    ]


def test_a_result_alone_needs_something_to_go_on_from() -> None:
    result = {"type": "function_call_output", "call_id": "c1", "output": "1"}
    assert describe_messages(messages_from(result, alone=True)) == [("tool", "1", [])]
    with pytest.raises(ValueError, match="must have the id of a call"):
        messages_from(result)


def test_what_the_servers_tools_did_is_said_where_no_session_has_it() -> None:
    items = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "I look. "},
        {"type": "shell_call", "call_id": "s1", "action": {"commands": ["ls"]}},
        {
            "type": "shell_call_output",
            "call_id": "s1",
            "output": [{"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 0}}],
        },
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": [{"type": "logs", "logs": "1"}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "more"},
    ]
    assert describe_messages(messages_from(*items)) == [
        ("user", "go", []),
        ("assistant", "I look. ", []),
        ("assistant", "", ["shell"]),
        ("tool", "a\nb", []),
        ("assistant", "", ["python"]),
        ("tool", "1", []),
        ("assistant", "Done.", []),
        ("user", "more", []),
    ]
    known = describe_messages(messages_from(*items, known=True))
    assert known == [("user", "go", []), ("assistant", "I look. Done.", []), ("user", "more", [])]


def test_an_answer_in_many_pieces_is_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def noted(text: str, *more: Any) -> Message:
        made.append(text)
        return assistant(text, *more)

    monkeypatch.setattr(input_messages, "assistant", noted)
    pieces = [{"role": "assistant", "content": f"{n} "} for n in range(100)]
    messages = messages_from({"role": "user", "content": "go"}, *pieces, {"role": "user", "content": "more"})
    assert describe_messages(messages)[1] == ("assistant", "".join(f"{n} " for n in range(100)), [])
    assert made == [messages[1].text]


def test_too_many_characters_are_refused_before_they_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(reading: Any, item: Any) -> None:
        raise AssertionError("nothing is read")

    monkeypatch.setattr(Reading, "read", never)
    items = [{"role": "assistant", "content": "x" * (MAX_TEXT // 8)}] * 9
    with pytest.raises(RequestTooLarge, match="characters together"):
        messages_from(*items)


def test_a_picture_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    real = openai_content.medium

    def noted(url: str, links: Any = None) -> Media:
        decoded.append(url)
        return real(url, links)

    monkeypatch.setattr(openai_content, "medium", noted)
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    it = body(input=[{"role": "user", "content": [picture]}])
    for known in (False, True):
        (message,) = messages_of(it.items, FetchedInput(), known=known)[0]
        assert message.media == (Media.of("image/png", PNG),)
    assert (
        items_to_store(it.items, "0" * 48, FetchedInput())[0]["content"][0]["medium"]["hash"] == message.media[0].hash
    )
    assert decoded == [picture["image_url"]]


def test_files_come_by_id_by_data_or_as_they_were_fetched() -> None:
    url, fetched = "https://a.org/b.txt", SubmittedFile(name="b.txt", mime="text/plain", data=b"b")
    parts = [
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGVsbG8="},
        {"type": "input_file", "file_url": url},
    ]
    it = body(input=[{"role": "user", "content": parts}])
    (message,), files = messages_of(it.items, FetchedInput(files={url: fetched}))
    assert message.text == "file-1, a.txt, b.txt"  # a prompt of files alone
    assert files == (SubmittedFile(id="file-1"), SubmittedFile(name="a.txt", mime="text/plain", data=b"hello"), fetched)
    kept = with_files(items_to_store(it.items, "s", FetchedInput()), ["file-1", "file-2", "file-3"])
    assert [part["file_id"] for part in kept[0]["content"]] == ["file-1", "file-2", "file-3"]


def test_nothing_but_instructions_asks_for_what_the_last_one_says() -> None:
    assert describe_messages(messages_from({"role": "developer", "content": "Greet."})) == [("user", "Greet.", [])]


@pytest.mark.parametrize(
    "item",
    [
        {"role": "assistant", "content": [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}]},
        {"role": "user", "content": [{"type": "input_image"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "file:///etc/passwd"}]},
        {"role": "user", "content": [{"type": "input_file", "file_url": "ftp://a.org/x"}]},
        {"role": "user", "content": [{"type": "input_file", "file_id": "a", "file_url": "https://a.org"}]},
        {"role": "user", "content": [{"type": "input_audio"}]},
        {"role": "tool", "content": "x"},
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
        {"type": "function_call", "call_id": "", "name": "f"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "[" * 200 + "]" * 200, "namespace": 3},
        {"type": {}},
        "text",
        None,
    ],
    ids=str,
)
def test_an_item_that_can_not_be_taken_is_refused(item: Any) -> None:
    refusal_of(input=[item])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(
    ["type", "role", "content", "call_id", "name", "arguments", "output", "id", "action", "code", "outputs", "text"]
)
kinds = st.sampled_from(
    ["message", "function_call", "function_call_output", "reasoning", "item_reference", "shell_call", "input_text", ""]
)
items = st.dictionaries(keys, json_values | kinds | st.lists(st.dictionaries(keys, json_values | kinds)), max_size=5)


@given(st.lists(items | json_values, max_size=4))
def test_any_input_is_taken_or_is_a_mistake_in_words(given: list[Any]) -> None:
    with contextlib.suppress(ValueError):
        it = body(input=given)
        messages_of(it.items, FetchedInput(), alone=True)
        assert all(kept["id"] for kept in items_to_store(it.items, "s", FetchedInput()))


def test_listed_items_are_those_of_openai() -> None:
    it = body(
        input=[
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "x"},
            {"type": "reasoning", "id": "rs_1", "summary": []},
        ]
    )
    kept = items_to_store(it.items, "s", FetchedInput())
    assert [ITEM.validate_python(item).type for item in kept] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
        "reasoning",
    ]

"""Tests how requests for a response become the request of a turn."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseItem
from openai.types.responses.tool import Tool
from pydantic import TypeAdapter, ValidationError

from agent_kernel.core.errors import Unprocessable
from agent_kernel.core.messages import Media, Message, Text, assistant
from jupyter_ext.api.dialects import openai_content
from jupyter_ext.api.dialects.openai_content import MAX_TEXT
from jupyter_ext.api.responses import input_messages
from jupyter_ext.api.responses.input_items import Brought
from jupyter_ext.api.responses.input_messages import Reading, items_to_store, messages_of, with_files
from jupyter_ext.api.responses.request import ResponsesBody
from jupyter_ext.api.responses.response_object import ResponseFacts, response_id
from jupyter_ext.turns.dialect_request import DialectRequest, SubmittedFile

TOOL: TypeAdapter[Any] = TypeAdapter(Tool)
ITEM: TypeAdapter[Any] = TypeAdapter(ResponseItem)
PNG = bytes.fromhex("89504e470d0a1a0a")
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
SHELL = {"type": "shell", "environment": {"type": "container_auto"}}


def body(**fields: Any) -> ResponsesBody:
    return ResponsesBody.model_validate({"model": "default", "input": "Hi.", **fields})


def turn_request(**fields: Any) -> DialectRequest:
    it = body(**fields)
    return it.to_turn(*messages_of(it.items, Brought()))


def messages_from(
    *items: Any, known: bool = False, alone: bool = False, brought: Brought | None = None
) -> list[Message]:
    return messages_of(body(input=list(items)).items, brought or Brought(), known=known, alone=alone)[0]


def describe_messages(messages: list[Message]) -> list[tuple[str, str, list[str]]]:
    return [(message.role, message.text, [call.name for call in message.calls]) for message in messages]


def refusal_of(**fields: Any) -> str:
    with pytest.raises(ValidationError) as error:
        body(**fields)
    return str(error.value)


# ---------------------------------------------------------------------------------------------------- messages


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
    brought = Brought({"https://a.org/x.png": other, "file-1": other})
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
    with pytest.raises(ValueError, match="characters together"):
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
        (message,) = messages_of(it.items, Brought(), known=known)[0]
        assert message.media == (Media.of("image/png", PNG),)
    assert items_to_store(it.items, "0" * 48, Brought())[0]["content"][0]["medium"]["hash"] == message.media[0].hash
    assert decoded == [picture["image_url"]]


def test_files_come_by_id_by_data_or_as_they_were_fetched() -> None:
    url, fetched = "https://a.org/b.txt", SubmittedFile(name="b.txt", mime="text/plain", data=b"b")
    parts = [
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGVsbG8="},
        {"type": "input_file", "file_url": url},
    ]
    it = body(input=[{"role": "user", "content": parts}])
    (message,), files = messages_of(it.items, Brought(files={url: fetched}))
    assert message.text == "file-1, a.txt, b.txt"  # a prompt of files alone
    assert files == (SubmittedFile(id="file-1"), SubmittedFile(name="a.txt", mime="text/plain", data=b"hello"), fetched)
    kept = with_files(items_to_store(it.items, "s", Brought()), ["file-1", "file-2", "file-3"])
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


# ---------------------------------------------------------------------------------------------------- tools


@pytest.mark.parametrize("tool", [WEATHER, {"type": "function", "function": {"name": "weather"}}])
def test_a_function_comes_flat_or_nested(tool: Any) -> None:
    (spec,) = turn_request(tools=[tool]).request.functions
    assert (spec.name, spec.where, spec.source) == ("weather", "caller", "external")


def test_functions_of_a_namespace_are_flattened_and_free_text_tools_left_out() -> None:
    inner = [WEATHER | {"name": "spawn_agent"}, {"type": "custom", "name": "shell"}]
    it = body(tools=[{"type": "namespace", "name": "multi_agent_v1", "tools": inner}, {"type": "custom", "name": "c"}])
    assert [spec.name for spec in it.to_turn([], ()).request.functions] == ["multi_agent_v1.spawn_agent"]
    assert it.namespaces == {"multi_agent_v1.spawn_agent": ("multi_agent_v1", "spawn_agent")}
    chosen = {"type": "function", "name": "spawn_agent", "namespace": "multi_agent_v1"}
    it = body(tools=[{"type": "namespace", "name": "multi_agent_v1", "tools": inner}], tool_choice=chosen)
    assert it.to_turn([], ()).request.tool_choice == "multi_agent_v1.spawn_agent"


@pytest.mark.parametrize("kind", ["web_search", "web_search_2025_08_26"])
def test_the_web_comes_with_its_options(kind: str) -> None:
    tool = {
        "type": kind,
        "search_context_size": "low",
        "return_token_budget": "unlimited",
        "filters": {"allowed_domains": ["a.org"]},
        "user_location": {"type": "approximate", "country": "GB"},
    }
    it = turn_request(tools=[tool])
    assert (it.server_tools, it.request.web) == (("web",), {key: tool[key] for key in tool if key != "type"})


def test_a_search_without_the_outside_is_left_out_but_for_the_preview() -> None:
    assert turn_request(tools=[{"type": "web_search", "external_web_access": False}]).server_tools == ()
    preview = turn_request(tools=[{"type": "web_search_preview", "external_web_access": False}])
    assert (preview.server_tools, preview.request.web) == (("web",), {})


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search", "search_content_types": ["image"]},
        {"type": "web_search_preview", "filters": {"allowed_domains": ["a.org"]}},
        {"type": "web_search_preview", "return_token_budget": "unlimited"},
        {"type": "web_search", "filters": {"blocked_domains": [f"a{n}.org" for n in range(101)]}},
        {"type": "web_search", "search_context_size": "huge"},
        {"type": "code_interpreter", "container": "cntr_1"},
        {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-1"]}},
        {"type": "code_interpreter", "container": {"type": "auto", "memory_limit": "4g"}},
        {"type": "shell"},
        {"type": "shell", "environment": {"type": "local"}},
        {"type": "shell", "environment": {"type": "container_reference", "container_id": "c"}},
        {"type": "shell", "environment": {"type": "container_auto", "skills": [{"type": "inline", "name": "x"}]}},
        {"type": "file_search", "vector_store_ids": ["v"]},
        {"type": "mcp", "server_label": "x", "server_url": "https://a.org"},
        {"type": "computer_use_preview"},
        {"type": "image_generation"},
        {"type": "what"},
        {"name": "f"},
        {"type": "function"},
        {"type": "function", "name": "a b"},
        {"type": "function", "name": "f", "parameters": {"type": 3}},
    ],
    ids=lambda tool: json.dumps(tool)[:70],
)
def test_a_tool_that_is_not_to_be_had_is_refused(tool: Any) -> None:
    refusal_of(tools=[tool])


def test_tools_of_the_server_are_turned_on_one_by_one() -> None:
    skill = {"type": "skill_reference", "skill_id": "skill_1", "version": 2}
    shell = {"type": "shell", "environment": {"type": "container_auto", "skills": [skill]}}
    it = turn_request(tools=[{"type": "code_interpreter", "container": {"type": "auto"}}, shell])
    assert (it.server_tools, it.request.skills) == (("python", "shell"), ("skill_1@2",))
    assert turn_request(model="agent/default").server_tools is None
    assert "mcp" in (turn_request(max_tool_rounds=3).server_tools or ())


@pytest.mark.parametrize(
    ("choice", "tools", "expected"),
    [
        (None, [], ("auto", [])),
        ("none", [WEATHER], ("none", ["weather"])),
        ("required", [WEATHER], ("required", ["weather"])),
        ("required", [SHELL], ("required", [])),
        ({"type": "function", "name": "weather"}, [WEATHER], ("weather", ["weather"])),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]},
            [WEATHER, WEATHER | {"name": "other"}, SHELL],
            ("required", ["weather"]),
        ),
    ],
    ids=str,
)
def test_which_tool_is_called_can_be_chosen(choice: Any, tools: list[Any], expected: tuple[str, list[str]]) -> None:
    it = turn_request(tools=tools, tool_choice=choice)
    assert (it.request.tool_choice, [spec.name for spec in it.request.functions]) == expected
    if isinstance(choice, dict) and choice["type"] == "allowed_tools":
        assert it.server_tools == (), "the shell is not among them"


@pytest.mark.parametrize(
    ("choice", "tools"),
    [
        ("required", []),
        ({"type": "function", "name": "other"}, [WEATHER]),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "other"}]}, [WEATHER]),
        ({"type": "web_search_preview"}, [{"type": "web_search_preview"}]),
        ({"type": "shell"}, [SHELL]),
        ("sometimes", [WEATHER]),
        (7, []),
    ],
    ids=str,
)
def test_a_choice_of_what_is_not_there_is_refused(choice: Any, tools: list[Any]) -> None:
    refusal_of(tools=tools, tool_choice=choice)


# ---------------------------------------------------------------------------------------------------- the rest


def test_a_top_p_of_0_is_the_likeliest_token() -> None:
    sampling = turn_request(top_p=0).request.sampling
    assert (sampling.top_p, sampling.top_k) == (None, 1)


def test_how_it_answers_is_bound() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    it = turn_request(text={"format": form}, temperature=0.0, top_p=0.5, max_output_tokens=7, parallel_tool_calls=False)
    assert it.request.output is not None
    assert (it.request.output.kind, it.request.output.json_schema, it.request.output.name) == (
        "json_schema",
        schema,
        "n",
    )
    sampling = it.request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.0, 0.5, 7)
    assert it.request.parallel_calls is False
    assert turn_request(top_logprobs=2).request.sampling.logprobs is True


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tool_calls": 3},
        {"prompt": {"id": "pmpt_1"}},
        {"background": True, "store": False},
        {"conversation": "a", "session_id": "b"},
        {"conversation": "a", "previous_response_id": "resp_1"},
        {"metadata": {f"k{n}": "v" for n in range(17)}},
        {"metadata": {"k": 3}},
        {"temperature": 3},
        {"max_output_tokens": 0},
        {"truncation": "middle"},
        {"agent_permission": "maybe"},
        {"input": 7},
        {"input": ""},
        {"input": []},
        {"input": [{"role": "user", "content": "x"}] * 4_001},
    ],
    ids=lambda fields: json.dumps(fields)[:60],
)
def test_what_does_not_go_together_is_refused(fields: Any) -> None:
    refusal_of(**fields)


def test_files_are_made_by_tools_of_the_server() -> None:
    wanted: Any = [{"name": "a.csv", "format": "csv"}]
    for fields in ({}, {"model": "agent/default", "max_tool_rounds": 0}):
        with pytest.raises(Unprocessable):
            turn_request(files=wanted, **fields)
    (one,) = turn_request(model="agent/default", files=wanted).request.outputs
    assert (one.name, one.format) == ("a.csv", "csv")


def test_a_file_of_the_input_can_be_read() -> None:
    part = {"type": "input_file", "file_id": "file-1"}
    assert turn_request(input=[{"role": "user", "content": [part]}]).server_tools == ("files",)


def test_where_some_tools_are_allowed_the_server_has_no_others() -> None:
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]}
    it = turn_request(model="agent/default", tools=[WEATHER], tool_choice=choice)
    assert (it.server_tools, it.name) == ((), "")


@pytest.mark.parametrize("model", ["default", "agent/default"])
def test_rounds_turn_no_tools_on_where_only_some_are_allowed(model: str) -> None:
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]}
    assert turn_request(model=model, tools=[WEATHER], tool_choice=choice, max_tool_rounds=3).server_tools == ()
    choice["tools"] = [{"type": "shell"}]
    assert turn_request(model=model, tools=[WEATHER, SHELL], tool_choice=choice, max_tool_rounds=3).server_tools == (
        "shell",
    )


def test_a_resource_repeats_what_was_asked() -> None:
    tools = [
        WEATHER | {"strict": True, "description": "d"},
        {"type": "web_search", "search_context_size": "low"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        SHELL,
    ]
    it = body(
        tools=tools,
        tool_choice={"type": "function", "name": "weather"},
        reasoning={"effort": "low", "summary": "auto"},
        text={"format": {"type": "json_object"}, "verbosity": "low"},
        metadata={"a": "b"},
        truncation="auto",
        user="u",
        service_tier="flex",
        conversation={"id": "talk"},
    )
    made = Response.model_validate(
        ResponseFacts(response_id("ns", "turn"), "m", "s", echo=it.echo).resource("in_progress")
    )
    assert made.reasoning is not None
    assert made.text is not None
    assert made.conversation is not None
    assert (made.reasoning.effort, made.text.verbosity, made.conversation.id) == ("low", "low", "talk")
    assert (made.metadata, made.truncation, made.user, made.service_tier) == ({"a": "b"}, "auto", "u", "default")
    assert [TOOL.validate_python(tool).type for tool in it.echo["tools"]] == [
        "function",
        "web_search",
        "code_interpreter",
        "shell",
    ]


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
        messages_of(it.items, Brought(), alone=True)
        assert all(kept["id"] for kept in items_to_store(it.items, "s", Brought()))


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
    kept = items_to_store(it.items, "s", Brought())
    assert [ITEM.validate_python(item).type for item in kept] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
        "reasoning",
    ]

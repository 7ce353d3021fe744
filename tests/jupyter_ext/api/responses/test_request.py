"""Tests how requests for a response become the request of a turn."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response
from openai.types.responses.tool import Tool
from pydantic import TypeAdapter

from agent_kernel.core.errors import Unprocessable
from jupyter_ext.api.responses.response_object import ResponseFacts, response_id
from tests.jupyter_ext.api.responses.response_requests import (
    WEATHER,
    body,
    refusal_of,
    turn_request,
)
from tests.narrowing import not_none

TOOL: TypeAdapter[Any] = TypeAdapter(Tool)
SHELL = {"type": "shell", "environment": {"type": "container_auto"}}


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
    assert (not_none(made.reasoning).effort, not_none(made.text).verbosity) == ("low", "low")
    assert not_none(made.conversation).id == "talk"
    assert (made.metadata, made.truncation, made.user, made.service_tier) == ({"a": "b"}, "auto", "u", "default")
    assert [TOOL.validate_python(tool).type for tool in it.echo["tools"]] == [
        "function",
        "web_search",
        "code_interpreter",
        "shell",
    ]


def test_the_resource_has_openais_defaults_for_what_the_request_leaves_out() -> None:
    given = body(
        tools=[{"type": "function", "name": "weather"}],
        text={"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}},
    ).echo
    sampling = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs")
    assert [given[name] for name in sampling] == [1.0, 1.0, 0.0, 0.0, 0]
    assert given["tools"] == [
        {"type": "function", "name": "weather", "description": None, "parameters": None, "strict": None}
    ]
    assert given["text"]["format"] == {
        "type": "json_schema",
        "name": "a",
        "description": None,
        "schema": {"type": "object"},
        "strict": False,
    }
    assert body(temperature=0, presence_penalty=0.5).echo["temperature"] == 0
    assert body(temperature=0, presence_penalty=0.5).echo["presence_penalty"] == 0.5

"""Tests the requests that are sent to a server."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Any

import pytest
from openai.types.chat import completion_create_params
from pydantic import TypeAdapter

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Media, Message, ToolCall, assistant, strict_call_id, system, tool_result, user
from agent_kernel.core.protocols import EngineRequest, OutputFormat, Sampling
from agent_kernel.engines.openai_api.request import affinity_of, encode
from tests.engines.openai_api.talk import PYTHON, SCHEMA

PICTURE = Media.of("image/png", b"png")
CALL = ToolCall("call_0123456789abcdef", "python", {"code": "1 + 1"})
STORY = (system("Be brief."), user("Add."), assistant("Well.", [CALL]), tool_result(CALL, "2", "success"), user("So?"))


def body(
    *messages: Message, vision: bool = False, extra: dict[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    return encode(EngineRequest(messages or (user("x"),), **options), "m", vision=vision, extra=extra or {})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tools": (PYTHON,)},
        {"tools": (PYTHON,), "tool_choice": "required", "parallel_calls": False},
        {"tools": (PYTHON,), "tool_choice": "python"},
        {"output": OutputFormat("json_object")},
        {"output": OutputFormat("json_schema", SCHEMA, name="code")},
        {"sampling": Sampling(temperature=0, top_p=0.9, seed=7, max_tokens=9, stop=("END",), logprobs=True)},
    ],
)
def test_a_request_is_one_of_openais(options: dict[str, Any]) -> None:
    wire = TypeAdapter(completion_create_params.CompletionCreateParamsStreaming)
    sent = body(*STORY, user("And this?", [PICTURE]), vision=True, **options)
    known = completion_create_params.CompletionCreateParamsStreaming.__annotations__
    known = known | completion_create_params.CompletionCreateParamsBase.__annotations__
    checked = wire.validate_python(sent)
    assert len([*checked["messages"]]) == len(sent["messages"])  # a list is checked as it is read
    assert len([*checked.get("tools", ())]) == len(options.get("tools", ()))
    assert set(sent) <= set(known)


def test_the_whole_conversation_goes_along_and_nothing_of_the_server_is_named() -> None:
    sent = body(*STORY, tools=(PYTHON,))
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "tool", "user"]
    assert not {"store", "previous_response_id", "conversation"} & set(sent)


def test_a_call_and_its_result_stay_a_pair_with_an_id_that_every_server_takes() -> None:
    _, _, said, result, _ = body(*STORY)["messages"]
    [call] = said["tool_calls"]
    assert call["id"] == result["tool_call_id"] == strict_call_id(CALL.id)
    assert len(call["id"]) == 9
    assert call["id"].isalnum()
    assert call["function"] == {"name": "python", "arguments": '{"code": "1 + 1"}'}


def test_an_id_that_every_server_takes_is_kept() -> None:
    assert strict_call_id("a1B2c3D4e") == "a1B2c3D4e"


def test_fields_that_were_not_asked_for_are_not_sent() -> None:
    assert set(body()) == {"model", "messages", "stream", "stream_options"}


def test_pictures_are_data_urls_for_a_model_that_sees() -> None:
    [message] = body(user("What?", [PICTURE]), vision=True)["messages"]
    picture, text = message["content"]
    assert picture["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(b"png").decode()
    assert text == {"type": "text", "text": "What?"}


def test_pictures_are_a_note_for_a_model_that_does_not() -> None:
    [message] = body(user("What?", [PICTURE]))["messages"]
    assert message["content"] == "What?\n[image/png, not shown to this model]"


def test_a_medium_without_its_bytes_or_of_another_kind_is_a_note() -> None:
    gone, sound = Media("image/png", "0" * 64, 3), Media.of("audio/wav", b"w")
    [message] = body(user("What?", [gone, sound]), vision=True)["messages"]
    assert message["content"] == "What?\n[image/png, not shown to this model]\n[audio/wav, not shown to this model]"


def test_pictures_of_tools_follow_all_results_of_their_round() -> None:
    other = ToolCall("b", "python", {})
    shown = tool_result(CALL, "", "success", [PICTURE])
    messages = body(assistant("", [CALL, other]), shown, tool_result(other, "2", "success"), vision=True)["messages"]
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user"]
    assert messages[-1]["content"][1]["type"] == "image_url"


def test_what_the_configuration_adds_goes_along_and_replaces_nothing() -> None:
    sent = body(extra={"reasoning_effort": "low", "temperature": 1}, sampling=Sampling(temperature=0))
    assert (sent["reasoning_effort"], sent["temperature"]) == ("low", 0)


@pytest.mark.parametrize(
    "options", [{"tool_choice": "required"}, {"tool_choice": "other", "tools": (PYTHON,)}, {"tool_choice": "python"}]
)
def test_a_choice_of_tools_that_are_not_there_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="tool_choice"):
        body(**options)


def test_a_regex_and_a_choice_are_what_vllm_calls_them() -> None:
    assert body(output=OutputFormat("regex", regex="a+"))["structured_outputs"] == {"regex": "a+"}
    assert body(output=OutputFormat("choice", choice=("a", "b")))["structured_outputs"] == {"choice": ["a", "b"]}


def test_a_session_has_one_opaque_id_for_each_server() -> None:
    request = EngineRequest((user("x"),), session="ada/chat-1")
    one = affinity_of(request, "http://models/v1")
    assert re.fullmatch("[0-9a-f]{32}", one)
    assert one == affinity_of(replace(request, messages=(user("y"),)), "http://models/v1")
    assert one != affinity_of(request, "http://others/v1")
    assert one != affinity_of(replace(request, session="ada/chat-2"), "http://models/v1")
    assert affinity_of(replace(request, session=""), "http://models/v1") == ""


def test_a_cache_key_of_the_configuration_takes_precedence() -> None:
    request = EngineRequest((user("x"),), session="ada/chat-1")
    assert encode(request, "m", vision=False, extra={}, affinity="ab")["prompt_cache_key"] == "ab"
    sent = encode(request, "m", vision=False, extra={"prompt_cache_key": "mine"}, affinity="ab")
    assert sent["prompt_cache_key"] == "mine"
    assert "prompt_cache_key" not in encode(request, "m", vision=False, extra={})

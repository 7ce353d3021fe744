"""Tests that the answers and events of the three foreign APIs are exactly of the types that OpenAI's and Anthropic's
clients declare: pydantic reads each of them in strict mode, and no event has a type that these clients do not know."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import anthropic.types
import httpx
import openai.types
import openai.types.responses
import pytest
from openai.types import chat, conversations
from pydantic import TypeAdapter

from tests.jupyter_ext.chat import said
from tests.server import TOKEN, AgentServer, Json

SOURCE = "open('out.csv', 'w').write('a'); print(6 * 7)"
WEATHER_CALLS = [{"name": "weather", "arguments": {"city": city}} for city in ("Ulm", "Bonn")]
RUN = {"name": "python", "arguments": {"code": SOURCE}}
LIST = {"name": "shell", "arguments": {"commands": ["echo here", "exit 3"]}}
SCRIPT: list[Json] = [
    {"text": json.dumps({"city": "Ulm"}), "when": "object", "loop": True},
    {"text": "Thought.", "reasoning": "First I think.", "when": "think", "loop": True},
    {"text": "It is cut", "finish": "length", "when": "cut", "loop": True},
    {"text": "It beg", "deltas": 2, "delay": 0.05, "fault": "the model fell", "when": "broken", "loop": True},
    {"text": "Let me see.", "calls": WEATHER_CALLS, "when": "weather", "loop": True},
    *[{"text": "I compute.", "calls": [RUN], "when": f"compute {dialect} {stream}"}
      for dialect in ("chat", "responses", "messages") for stream in (True, False)],
    *[{"text": "I list.", "calls": [LIST], "when": f"list {stream}"} for stream in (True, False)],
    {"text": "word " * 20, "deltas": 20, "delay": 0.05, "when": "slow", "loop": True},
    {"text": "Hello there.", "deltas": 3, "loop": True},
]  # fmt: skip
DOT = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6364f8ff1f00030301ffa"
        "7a3d6530000000049454e44ae426082"
    )
).decode()
SCHEMA: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION: Json = {"name": "weather", "description": "Tells it.", "parameters": SCHEMA, "strict": True}
PICTURE = f"data:image/png;base64,{DOT}"


CHAT: dict[str, Json] = {
    "plain": {"messages": said("hi")},
    "usage": {"messages": said("hi"), "stream_options": {"include_usage": True}},
    "reasoning": {"messages": said("think")},
    "log probabilities": {"messages": said("hi"), "logprobs": True, "top_logprobs": 2},
    "schema": {
        "messages": said("object"),
        "response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}},
    },
    "calls": {"messages": said("weather"), "tools": [{"type": "function", "function": FUNCTION}]},
    "picture": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]}]},
    "cut": {"messages": said("cut"), "max_completion_tokens": 2},
    "stop": {"messages": said("hi"), "stop": ["there"], "seed": 1, "temperature": 0.5, "user": "ada"},
    "agent": {"messages": said("compute chat STREAM"), "model": "agent/default"},
}
RESPONSES: dict[str, Json] = {
    "plain": {"input": "hi", "instructions": "Be short.", "metadata": {"a": "b"}},
    "not stored": {"input": "hi", "store": False},
    "background": {"input": "hi", "background": True},
    "reasoning": {"input": "think"},
    "log probabilities": {"input": "hi", "top_logprobs": 2, "include": ["message.output_text.logprobs"]},
    "schema": {"input": "object", "text": {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA}}},
    "calls": {"input": "weather", "tools": [{"type": "function", **FUNCTION}]},
    "picture": {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]}]},
    "cut": {"input": "cut", "max_output_tokens": 16},
    "failed": {"input": "broken", "background": True},
    "agent": {"input": "compute responses STREAM", "model": "agent/default"},
    "shell": {"input": "list STREAM", "tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
}
BLOCK: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DOT}}
RESULT: Json = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [BLOCK], "is_error": True}
CALL: Json = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
TOOL: Json = {"name": "weather", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}
MESSAGES: dict[str, Json] = {
    "plain": {
        "messages": said("hi"),
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    },
    "thinking": {"messages": said("think"), "thinking": {"type": "enabled", "budget_tokens": 1_024}},
    "calls": {"messages": said("weather"), "tools": [TOOL], "tool_choice": {"type": "any"}},
    "result": {
        "messages": [*said("x"), {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [RESULT]}],
        "tools": [TOOL],
    },
    "picture": {"messages": [{"role": "user", "content": [BLOCK, {"type": "text", "text": "x"}]}]},
    "cut": {"messages": said("cut")},
    "stop": {"messages": said("hi"), "stop_sequences": ["there"], "metadata": {"user_id": "ada"}},
    "agent": {"messages": said("compute messages STREAM"), "model": "agent/default"},
}


@pytest.fixture(scope="module")
def http(server: AgentServer) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {TOKEN}", "anthropic-version": "2023-06-01"}
    with server.blocking_client(headers) as client:
        yield client


def types_of(union: Any) -> dict[str, Any]:
    """Return the members of a union of events by the values of their field ``type``."""
    union = get_args(union)[0] if get_origin(union) is Annotated else union
    members = get_args(union)
    return {kind: member for member in members for kind in get_args(member.model_fields["type"].annotation)}


def check(kind: Any, data: Any) -> None:
    TypeAdapter(kind).validate_json(json.dumps(data), strict=True)


def post(http: httpx.Client, route: str, body: Json, *, stream: bool) -> httpx.Response:
    text = json.dumps({"model": "default", **body, "stream": stream}).replace("STREAM", str(stream))
    reply = http.post(f"agent/v1/{route}", content=text, headers={"Content-Type": "application/json"})
    assert reply.status_code == 200, reply.text
    return reply


def read_events(reply: httpx.Response) -> list[tuple[str, Any]]:
    """Return (name, data) of the server-sent events, without ``[DONE]``."""
    found = []
    for block in reply.text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines and lines["data"] != "[DONE]":
            found.append((lines.get("event", ""), json.loads(lines["data"])))
    return found


@pytest.mark.parametrize("name", CHAT)
def test_completions_and_chunks_are_openais(http: httpx.Client, name: str) -> None:
    check(chat.ChatCompletion, post(http, "chat/completions", CHAT[name], stream=False).json())
    events = read_events(post(http, "chat/completions", CHAT[name], stream=True))
    for event, data in events:
        assert event == data.get("type", "")
        check(chat.ChatCompletionChunk, data)
    assert len({data["id"] for _, data in events}) == 1


@pytest.mark.parametrize("name", RESPONSES)
def test_responses_and_their_events_are_openais(http: httpx.Client, name: str) -> None:
    kinds = types_of(openai.types.responses.ResponseStreamEvent)
    whole = post(http, "responses", RESPONSES[name], stream=False).json()
    check(openai.types.responses.Response, whole)
    events = read_events(post(http, "responses", RESPONSES[name], stream=True))
    for number, (event, data) in enumerate(events):
        assert (event, data["sequence_number"]) == (data["type"], number)
        check(kinds[event], data)
    if RESPONSES[name].get("store", True):
        id = events[0][1]["response"]["id"]
        check(openai.types.responses.Response, http.get(f"agent/v1/responses/{id}").json())
        assert read_events(http.get(f"agent/v1/responses/{id}?stream=true")) == events
        items = http.get(f"agent/v1/responses/{id}/input_items").json()
        check(openai.types.responses.ResponseItemList, items)


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_and_their_events_are_anthropics(http: httpx.Client, name: str) -> None:
    kinds = types_of(anthropic.types.RawMessageStreamEvent)
    body = {"max_tokens": 2_000, **MESSAGES[name]}
    check(anthropic.types.Message, post(http, "messages", body, stream=False).json())
    for event, data in read_events(post(http, "messages", body, stream=True)):
        assert event == data["type"]
        check(kinds[event], data)


def test_the_items_of_a_conversation_are_openais(http: httpx.Client) -> None:
    added: list[Json] = [
        *said("x"),
        {"role": "assistant", "content": [{"type": "output_text", "text": "y", "annotations": []}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "z"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
    ]
    conversation = http.post("agent/v1/conversations", json={"items": added}).json()
    check(conversations.Conversation, conversation)
    path = f"agent/v1/conversations/{conversation['id']}"
    for words in ("think", "weather"):
        body = {"input": words, "conversation": conversation["id"], "tools": [{"type": "function", **FUNCTION}]}
        post(http, "responses", body, stream=True)
    listed = http.get(f"{path}/items?limit=100").json()
    check(conversations.ConversationItemList, listed)
    for item in listed["data"]:
        one = http.get(f"{path}/items/{item['id']}").json()
        assert one == item
        check(conversations.ConversationItem, one)
    check(conversations.ConversationDeletedResource, http.delete(path).json())


def test_a_cancelled_response_is_openais(http: httpx.Client) -> None:
    started = post(http, "responses", {"input": "slow", "background": True}, stream=False).json()
    cancelled = http.post(f"agent/v1/responses/{started['id']}/cancel").json()
    assert cancelled["status"] == "cancelled"
    check(openai.types.responses.Response, cancelled)

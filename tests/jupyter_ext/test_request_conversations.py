"""Tests conversations that clients send along with requests."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from pydantic import ValidationError

from agent_kernel.core.messages import Media, Text, ToolCall
from agent_kernel.core.turn_request import TurnRequest
from jupyter_ext.api.dialects.openai_content import MAX_MESSAGES
from jupyter_ext.api.native.request_schemas import TurnBody
from tests.server import AgentServer, Json, followed, items_of

PNG = base64.b64encode(b"png").decode()
OPENAI: list[Json] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Look:"}], "name": None},
    {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "2"},
    {"role": "assistant", "content": "It is 2."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "And this?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}},
            {"type": "media", "mime": "image/png", "data": PNG},
            {"type": "media", "mime": "image/png", "hash": "a" * 64, "size": 3},
        ],
    },
]


def request_of(**body: Any) -> TurnRequest:
    return TurnBody.model_validate_json(json.dumps(body)).request()


def test_messages_come_in_the_shape_that_clients_have() -> None:
    request = request_of(messages=OPENAI, history="replay", history_limit=7)
    picture = Media.of("image/png", b"png")
    assert [message.role for message in request.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert request.messages[2].calls == (ToolCall("c", "f", {"a": 1}),)
    assert (request.messages[3].call_id, request.messages[3].text) == ("c", "2")
    assert request.messages[5].parts == (Text("And this?"), picture, picture, Media("image/png", "a" * 64, 3))
    assert (request.history, request.history_limit, request.last_user_text) == ("replay", 7, "And this?")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "send a prompt"),
        ({"messages": OPENAI[:5]}, "send a prompt"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "tool_call_id"),
        ({"messages": [{"role": "user", "content": 5}]}, "content"),
        ({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}, "type"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 101}]}, "100"),
        ({"messages": [{"role": "user", "content": [{"type": "media", "mime": "image/png"}]}]}, "hash"),
        (
            {"messages": [{"role": "user", "content": [{"type": "media", "mime": "text/html", "data": PNG}]}]},
            "do not accept",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "media", "mime": "image/png", "data": "%"}]}]}, "base64"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/"}}]}]},
            "url",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,%"}}],
                    }
                ]
            },
            "base64",
        ),
        ({"messages": [{"role": "user", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}]}, "cannot call"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "", "function": {"name": "f"}}]}]}, "id"),
        ({"prompt": "x", "messages": [{"role": "user", "content": "x"}] * (MAX_MESSAGES + 1)}, "4000"),
        ({"prompt": "x", "history": "guess"}, "history"),
        ({"prompt": "x", "history_limit": -1}, "history_limit"),
    ],
)
def test_what_can_not_be_a_conversation_is_refused_in_words(body: Json, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        request_of(**body)


def test_arguments_are_not_deeper_than_what_models_write() -> None:
    deep: Any = 1
    for _ in range(101):
        deep = [deep]
    call = {"id": "c", "function": {"name": "f", "arguments": {"a": deep}}}
    with pytest.raises(ValidationError, match="levels"):
        request_of(prompt="x", messages=[{"role": "assistant", "tool_calls": [call]}])
    call["function"] = {"name": "f", "arguments": json.dumps({"a": deep})}
    request = request_of(prompt="x", messages=[{"role": "assistant", "tool_calls": [call]}])
    assert list(request.messages[0].calls[0].arguments) == ["_raw"]


def test_media_of_the_prompt_and_of_messages_count_together() -> None:
    half = base64.b64encode(bytes(11 << 20)).decode()
    medium = {"type": "media", "mime": "image/png", "data": half}
    with pytest.raises(ValidationError, match="MiB"):
        request_of(
            prompt="x", media=[{"mime": "image/png", "data": half}], messages=[{"role": "user", "content": [medium]}]
        )


async def test_a_conversation_is_carried_edited_and_refused_over_http(server: AgentServer) -> None:
    async with server.client() as client:

        async def turn(**body: Any) -> Json:
            reply = await client.post("agent/v1/sessions/carried/turns", json=body)
            assert reply.status_code == 202, reply.text
            end: Json = (await followed(client, reply.json()["turn"]))[-1]["data"]
            return end

        assert (await turn(prompt="hello"))["state"] == "committed"
        said = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hello."}]
        assert (await turn(messages=[*said, {"role": "user", "content": "hello again"}]))["state"] == "committed"
        assert [text for _, text in await items_of(client, "carried")] == [
            "hello",
            "Hello.",
            "hello again",
            "Hello.",
        ]
        assert (await turn(messages=said, prompt="hello, edited"))["state"] == "committed"
        assert [text for _, text in await items_of(client, "carried")] == [
            "hello",
            "Hello.",
            "hello, edited",
            "Hello.",
        ]
        named = {"type": "media", "mime": "image/png", "hash": "a" * 64, "size": 3}
        refused = await turn(messages=[{"role": "user", "content": [named]}])
        assert (refused["state"], refused["error"]["code"]) == ("failed", "invalid_request")
        assert (await client.post("agent/v1/turns", json={"messages": said})).status_code == 400

"""Tests answers and errors of ``chat/completions`` with OpenAI's official client on a real server."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.http_server import Answer, http_server
from tests.jupyter_ext.chat import Place, ask, extra, frames, said, stream, text_of
from tests.server import TOKEN, AgentServer, Json

SCRIPT: list[Json] = [
    {"text": "one two three", "deltas": 3, "when": "count", "loop": True},
    {"text": '{"city": "Ulm", "people": 3}', "deltas": 4, "when": "as JSON", "loop": True},
    {"reasoning": "Hm.", "text": "Sure.", "when": "think", "loop": True},
    {"text": "It was", "finish": "length", "when": "cut", "loop": True},
    {"text": "It begins", "fault": "hang", "when": "hang", "loop": True},
    {"text": "It begins", "fault": "The model is broken.", "when": "break late", "delay": 0.01, "loop": True},
    {"fault": "The model is broken.", "when": "break", "loop": True},
    {"text": "Hello.", "loop": True},
]
TRAITS = {"web_hosts": "127.0.0.1"}


def test_an_answer_is_a_completion(client: openai.OpenAI) -> None:
    told = ask(client, "hi")
    assert (told.choices[0].message.content, told.choices[0].finish_reason) == ("Hello.", "stop")
    assert told.usage is not None
    assert told.usage.total_tokens == told.usage.prompt_tokens + told.usage.completion_tokens > 0
    assert extra(told) == {}


def test_an_answer_is_streamed(client: openai.OpenAI) -> None:
    chunks = stream(client, "count")
    assert text_of(chunks) == "one two three"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None


def test_usage_of_a_stream_comes_as_it_was_asked_for(client: openai.OpenAI) -> None:
    chunks = stream(client, "count", stream_options={"include_usage": True})
    assert [(chunk.choices, chunk.usage is not None) for chunk in chunks if not chunk.choices or chunk.usage] == [
        ([], True)
    ]


async def test_the_async_client_does_the_same(server: AgentServer) -> None:
    async with openai.AsyncOpenAI(base_url=server.agent_url, api_key=TOKEN, max_retries=0) as client:
        whole = await client.chat.completions.create(model="default", messages=said("hi"))
        assert whole.choices[0].message.content == "Hello."
        chunks = await client.chat.completions.create(model="default", messages=said("count"), stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in chunks]) == "one two three"
        async with client.chat.completions.stream(model="default", messages=said("count")) as events:
            kinds = {event.type async for event in events}
            assert {"chunk", "content.delta", "content.done"} <= kinds
            assert (await events.get_final_completion()).choices[0].message.content == "one two three"


def test_an_answer_is_parsed_as_a_type(client: openai.OpenAI) -> None:
    whole = client.chat.completions.parse(model="default", messages=said("as JSON"), response_format=Place)
    assert whole.choices[0].message.parsed == Place(city="Ulm", people=3)
    with client.chat.completions.stream(model="default", messages=said("as JSON"), response_format=Place) as events:
        assert events.get_final_completion().choices[0].message.parsed == Place(city="Ulm", people=3)


def test_raw_and_streaming_responses_of_the_client_work(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="default", messages=said("hi"))
    assert raw.parse().choices[0].message.content == "Hello."
    assert raw.headers["X-Request-ID"]
    with client.chat.completions.with_streaming_response.create(
        model="default", messages=said("count"), stream=True
    ) as reply:
        assert list(reply.iter_lines())[-1:] == [""] or "data: [DONE]" in list(reply.iter_lines())[-2:]


def test_reasoning_comes_beside_the_answer(client: openai.OpenAI) -> None:
    assert extra(ask(client, "think").choices[0].message) == {"reasoning_content": "Hm."}
    told = [extra(chunk.choices[0].delta) for chunk in stream(client, "think")]
    assert {"reasoning_content": "Hm."} in told


def test_an_answer_that_was_cut_says_so(client: openai.OpenAI) -> None:
    assert ask(client, "cut", max_tokens=2).choices[0].finish_reason == "length"
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="default", messages=said("cut"), response_format=Place)


def test_log_probabilities_come_with_the_answer(client: openai.OpenAI) -> None:
    for logprobs in (
        ask(client, "count", logprobs=True, top_logprobs=1).choices[0].logprobs,
        next(c.choices[0].logprobs for c in stream(client, "count", logprobs=True) if c.choices[0].logprobs),
    ):
        assert logprobs is not None
        assert "".join(token.token for token in logprobs.content or ()) == "one two three"


def test_a_picture_may_come_along(client: openai.OpenAI) -> None:
    url = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
    content: Any = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]
    told = client.chat.completions.create(model="default", messages=[{"role": "user", "content": content}])
    assert told.choices[0].message.content == "Hello."


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """The address of another server with a picture (``/a.png``) and a page (``/page``)."""

    def answer(path: str, body: bytes) -> Answer:
        kind = {"/a.png": "image/png", "/page": "text/html"}.get(path)
        return 200 if kind else 404, {"Content-Type": kind or "text/plain"}, b"\x89PNG"

    with http_server(answer) as url:
        yield url


def look(client: openai.OpenAI, url: str) -> ChatCompletion:
    content: Any = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]
    return client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": content}], extra_body={"session_id": "pictures"}
    )


def test_a_picture_is_fetched_where_that_is_allowed(client: openai.OpenAI, http: httpx.Client, elsewhere: str) -> None:
    look(client, f"{elsewhere}/a.png")
    items = http.get("agent/v1/sessions/pictures/items").json()["items"]
    assert [part["type"] for part in items[0]["message"]["content"]] == ["text", "media"]


def test_what_can_not_be_fetched_is_the_clients_mistake(client: openai.OpenAI, elsewhere: str) -> None:
    for url in (f"{elsewhere}/page", f"{elsewhere}/none", "http://127.0.0.1:1/a.png", "http://"):
        with pytest.raises(openai.BadRequestError):
            look(client, url)
    with pytest.raises(openai.PermissionDeniedError):
        look(client, "http://10.0.0.1/a.png")


def test_calls_without_a_session_are_in_no_list(client: openai.OpenAI, http: httpx.Client) -> None:
    ask(client, "hi")
    assert "hi" not in http.get("agent/v1/sessions").text


# ---------------------------------------------------------------------------------------------------- errors


MISTAKES: list[tuple[Json, int, str, str | None]] = [
    ({"model": "no-such-model"}, 404, "model_not_found", None),
    ({"n": 9}, 400, "invalid_request", "n"),
    ({"messages": []}, 400, "invalid_request", "messages"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "invalid_request", "messages"),
    (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "none"}}]}]},
        404,
        "file_not_found",
        None,
    ),
    ({"tool_choice": "required"}, 400, "invalid_request", "tool_choice"),
    ({"files": [{"name": "a"}]}, 422, "unprocessable", "files"),
    ({"session_id": "a\0b"}, 400, "invalid_request", None),
    ({"logit_bias": {"7": 5}}, 400, "invalid_request", "logit_bias"),
    ({"reasoning_effort": "high"}, 400, "invalid_request", "reasoning_effort"),
    ({"guided_grammar": "root ::= x"}, 400, "invalid_request", "grammar"),
    ({"grammar": {"type": "lark", "value": "start: x"}}, 400, "invalid_request", "grammar"),
    ({"presence_penalty": 3}, 400, "invalid_request", "presence_penalty"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, 400, "invalid_request", "structured_outputs"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: next(iter(mistake[0])))
@pytest.mark.parametrize("streams", [False, True])
def test_a_mistake_is_told_in_openais_shape(
    http: httpx.Client, mistake: tuple[Json, int, str, str | None], streams: bool
) -> None:
    body, status, code, param = mistake
    reply = http.post("agent/v1/chat/completions", json={"messages": said("hi"), "stream": streams, **body})
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
    assert error["message"]
    assert error["request_id"] == reply.headers["X-Request-ID"]


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '{"messages": ' + "[" * 10_000, '"\\ud800"'])
def test_a_body_that_is_no_request_is_the_clients_mistake(http: httpx.Client, body: str) -> None:
    reply = http.post("agent/v1/chat/completions", content=body)
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")


def test_a_wrong_token_is_told_in_the_clients_words(server: AgentServer) -> None:
    client = openai.OpenAI(base_url=server.agent_url, api_key="wrong", max_retries=0)
    with client, pytest.raises(openai.AuthenticationError) as raised:
        ask(client, "hi")
    assert raised.value.type == "authentication_error"


def test_another_verb_is_refused_in_the_same_shape(http: httpx.Client) -> None:
    reply = http.get("agent/v1/chat/completions")
    assert (reply.status_code, reply.json()["error"]["type"]) == (405, "invalid_request_error")


@pytest.mark.parametrize("streams", [False, True])
def test_a_failure_before_the_first_word_has_its_status(client: openai.OpenAI, streams: bool) -> None:
    with pytest.raises(openai.InternalServerError, match="broken") as raised:
        client.chat.completions.create(model="default", messages=said("break"), stream=streams)
    assert raised.value.status_code == 503


def test_a_failure_after_the_first_word_ends_the_stream_with_an_error(
    client: openai.OpenAI, http: httpx.Client
) -> None:
    with pytest.raises(openai.APIError, match="broken"):
        stream(client, "break late")
    told = frames(http, messages=said("break late"))
    assert told[-1] == ("", "[DONE]")
    assert json.loads(told[-2][1])["error"]["type"] == "server_error"


def turn_of(http: httpx.Client, session: str) -> Json:
    turns: list[Json] = http.get(f"agent/v1/sessions/{session}/turns").json()["turns"]
    return turns[-1]


def test_a_session_that_is_busy_says_so_and_a_turn_that_is_stopped_too(
    client: openai.OpenAI, http: httpx.Client
) -> None:
    with client.chat.completions.create(
        model="default", messages=said("hang"), stream=True, extra_body={"session_id": "busy"}
    ) as chunks:
        next(chunk for chunk in chunks if chunk.choices[0].delta.content)
        with pytest.raises(openai.ConflictError) as raised:
            ask(client, "hi", extra_body={"session_id": "busy"})
        assert raised.value.code == "session_busy"
        http.post(f"agent/v1/turns/{turn_of(http, 'busy')['turn']}/cancel", json={"reason": "enough"})
        with pytest.raises(openai.APIError, match="enough"):
            list(chunks)


async def test_an_answer_that_was_stopped_is_not_asked_for_again_by_itself(server: AgentServer) -> None:
    async with openai.AsyncOpenAI(base_url=server.agent_url, api_key=TOKEN) as client, server.client() as http:
        waiting = asyncio.ensure_future(
            client.chat.completions.create(model="default", messages=said("hang"), extra_body={"session_id": "stopped"})
        )
        while not (turns := (await http.get("agent/v1/sessions/stopped/turns")).json().get("turns")):
            await asyncio.sleep(0.05)
        await http.post(f"agent/v1/turns/{turns[0]['turn']}/cancel", json={"reason": "enough"})
        with pytest.raises(openai.ConflictError, match="enough") as raised:
            await waiting
        assert raised.value.code == "turn_stopped"
        assert len((await http.get("agent/v1/sessions/stopped/turns")).json()["turns"]) == 1


def test_a_client_that_leaves_stops_its_turn(client: openai.OpenAI, http: httpx.Client) -> None:
    with client.chat.completions.create(
        model="default", messages=said("hang"), stream=True, extra_body={"session_id": "left"}
    ) as chunks:
        next(chunk for chunk in chunks if chunk.choices[0].delta.content)
    until = time.monotonic() + 30
    while (turn := turn_of(http, "left"))["state"] == "open" and time.monotonic() < until:
        time.sleep(0.05)
    assert turn["state"] == "cancelled"


@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses"])
def test_a_history_that_ends_with_the_assistant_is_refused_with_what_to_do(http: httpx.Client, path: str) -> None:
    history = [{"role": "user", "content": "Name a colour."}, {"role": "assistant", "content": "My favourite is"}]
    body = {"model": "default", "input": history} if path == "responses" else {"model": "default", "messages": history}
    refused = http.post(f"agent/v1/{path}", json=body | ({"max_tokens": 9} if path == "messages" else {}))
    assert refused.status_code == 400
    assert "end it with a message of the user" in refused.json()["error"]["message"]

"""Tests the replica of the Ray Serve application without Ray; ``test_cluster.py`` runs it on a
cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai.types import chat
from starlette.requests import Request

from agent_kernel.core.errors import AgentKernelError, InvalidRequest, ModelMissing, UnknownModel
from agent_kernel.engines.openai_api.answer_rest import announces_continuation
from jupyter_ext.api.http.json_body import MAX_BODY
from jupyter_ext.ray_serve.application import build
from jupyter_ext.ray_serve.replica import ModelReplica, ReplicaOptions
from tests.narrowing import not_none

HI = [{"role": "user", "content": "hi"}]
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
KEY = "AGENT_KERNEL_TEST_REPLICA_KEY"


def replica_of(folder: Path, script: Sequence[Mapping[str, Any]], **args: Any) -> ModelReplica:
    (folder / "script.json").write_text(json.dumps(script))
    settings = {"engine": "scripted", "script": str(folder / "script.json")}
    return ModelReplica(ReplicaOptions.from_args({"settings": settings, **args}))


class Client:
    """Sends requests to a replica as Serve does, with a route prefix."""

    def __init__(self, replica: ModelReplica) -> None:
        self.replica = replica

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        response = await self.replica(Request({**scope, "root_path": "/models"}, receive))
        await response(scope, receive, send)

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self), base_url="http://replica") as http:
            return await http.request(method, f"/models{path}", **options)

    async def complete(self, headers: Mapping[str, str] | None = None, **body: Any) -> httpx.Response:
        return await self.send("POST", "/v1/chat/completions", json={"messages": HI, **body}, headers=headers)


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    frames = [frame.removeprefix("data: ") for frame in response.text.split("\n\n") if frame]
    assert frames[-1] == "[DONE]"
    return [json.loads(frame) for frame in frames[:-1]]


async def test_an_answer_is_a_completion_of_openai(tmp_path: Path) -> None:
    reply = await Client(replica_of(tmp_path, [{"text": "Hello.", "reasoning": "Hm."}])).complete(
        model="scripted", logprobs=True, top_logprobs=1
    )
    assert reply.status_code == 200
    completion = chat.ChatCompletion.model_validate(reply.json())
    (choice,) = completion.choices
    assert (choice.message.content, choice.finish_reason) == ("Hello.", "stop")
    assert [token.token for token in not_none(choice.logprobs).content or ()] == ["Hello."]
    assert reply.json()["choices"][0]["message"]["reasoning_content"] == "Hm."


async def test_a_stream_has_the_calls_their_reason_and_the_usage(tmp_path: Path) -> None:
    script = [{"text": "a b", "deltas": 2, "calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]}]
    reply = await Client(replica_of(tmp_path, script)).complete(
        stream=True, tools=[WEATHER], stream_options={"include_usage": True}
    )
    assert reply.headers["content-type"].startswith("text/event-stream")
    chunks = [chat.ChatCompletionChunk.model_validate(event) for event in events_of(reply)]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "a b"
    (call,) = [call for delta in deltas for call in delta.tool_calls or ()]
    assert json.loads(not_none(call.function).arguments or "") == {"city": "Oslo"}
    assert "tool_calls" in [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert not_none(chunks[-1].usage).completion_tokens == 2


@pytest.mark.parametrize("streams", [False, True])
async def test_a_request_can_have_several_choices(tmp_path: Path, streams: bool) -> None:
    reply = await Client(replica_of(tmp_path, [{"text": "a b"}, {"text": "c"}])).complete(n=2, stream=streams)
    texts = {0: "", 1: ""}
    for event in events_of(reply) if streams else [reply.json()]:
        for choice in event["choices"]:
            texts[choice["index"]] += choice.get("delta", choice.get("message")).get("content") or ""
    assert set(texts.values()) == {"a b", "c"}
    assert event["usage"]["completion_tokens"] == 3


async def test_the_engine_gets_the_session_of_the_header(tmp_path: Path) -> None:
    client = Client(replica_of(tmp_path, [{"text": "Hello.", "loop": True}]))
    sent = [await client.complete({"x-session-id": session}) for session in ("one", "two", "one")]
    cached = [reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in sent]
    assert cached == [0, 0, 2]


async def test_an_error_before_the_answer_has_its_status_and_a_later_one_ends_the_stream(tmp_path: Path) -> None:
    fault = {"fault": "out of order"}
    client = Client(replica_of(tmp_path, [fault, fault, {"text": "Hel", **fault}, fault, {**fault, "loop": True}]))
    for streams in (True, False):
        reply = await client.complete(stream=streams)
        assert reply.status_code == 503
        assert reply.json()["error"]["message"] == "out of order"
    *_, text, last = events_of(await client.complete(stream=True))
    assert text["choices"][0]["delta"] == {"content": "Hel"}
    assert last["error"]["message"] == "out of order"
    assert (await client.complete(n=3)).status_code == 503


async def test_the_last_message_is_continued_and_the_model_says_so(tmp_path: Path) -> None:
    client = Client(replica_of(tmp_path, [{"text": "one two three", "loop": True}]))
    (model,) = (await client.send("GET", "/v1/models")).json()["data"]
    assert announces_continuation(model)
    body: dict[str, Any] = {
        "messages": [*HI, {"role": "assistant", "content": "one two"}],
        "continue_final_message": True,
    }
    reply = (await client.complete(**body, add_generation_prompt=False)).json()
    assert reply["choices"][0]["message"]["content"] == " three"
    assert reply["usage"]["completion_tokens"] == 1
    assert (await client.complete(**body, response_format={"type": "json_object"})).status_code == 400


async def test_a_replica_whose_engine_does_not_continue_answers_says_so(tmp_path: Path) -> None:
    settings = {"engine": "far", "engines": {"far": {"url": "http://127.0.0.1:9/v1", "model": "m"}}}
    client = Client(ModelReplica(ReplicaOptions.from_args({"settings": settings})))
    (model,) = (await client.send("GET", "/v1/models")).json()["data"]
    assert not announces_continuation(model)
    body: dict[str, Any] = {"messages": [*HI, {"role": "assistant", "content": "one"}], "continue_final_message": True}
    reply = await client.complete(**body)
    assert (reply.status_code, "does not support continue_final_message" in reply.text) == (400, True)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"continue_final_message": True}, 400, "continue_final_message needs a text of the assistant"),
        (
            {"messages": [*HI, {"role": "assistant", "content": ""}], "continue_final_message": True},
            400,
            "continue_final_message needs a text of the assistant",
        ),
        ({"messages": [*HI, {"role": "assistant", "content": "a"}]}, 400, "ends with a message of the assistant"),
        (
            {
                "messages": [*HI, {"role": "assistant", "content": "a"}],
                "continue_final_message": True,
                "add_generation_prompt": True,
            },
            400,
            "add_generation_prompt cannot be true",
        ),
        ({"model": "agent/default"}, 404, "scripted"),
        ({"model": "another"}, 404, "scripted"),
        ({"session_id": "s"}, 400, "stores no sessions"),
        ({"max_tool_rounds": 3}, 422, "no tools"),
        ({"web_search_options": {}}, 422, "no tools"),
        ({"messages": [{"role": "user", "content": 3}]}, 400, "messages[0].content"),
        ({"messages": [{"role": "tool", "tool_call_id": "c", "content": "late"}]}, 400, "messages"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://10.0.0.1/"}}]}
                ]
            },
            400,
            "fetches no media",
        ),
    ],
)
async def test_what_a_model_alone_cannot_do_is_refused_with_the_reason(
    tmp_path: Path, body: dict[str, Any], status: int, words: str
) -> None:
    reply = await Client(replica_of(tmp_path, [{"text": "Hello."}])).complete(**body)
    assert (reply.status_code, words in reply.json()["error"]["message"]) == (status, True), reply.text


async def test_only_json_of_a_limited_size_is_read(tmp_path: Path) -> None:
    client = Client(replica_of(tmp_path, []))
    path = "/v1/chat/completions"
    large = await client.send("POST", path, content=b" " * (MAX_BODY + 1))
    assert (large.status_code, "MiB" in large.text) == (413, True)
    form = await client.send("POST", path, content=b"{}", headers={"Content-Type": "text/plain"})
    assert (form.status_code, "application/json" in form.text) == (400, True)
    twice = await client.send("POST", path, content=b'{"messages": [], "messages": []}')
    assert twice.status_code == 400
    assert (await client.send("GET", path)).status_code == 404


async def test_with_a_key_every_request_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match=KEY):
        replica_of(tmp_path, [], api_key_env=KEY)
    monkeypatch.setenv(KEY, "secret-ä")
    client = Client(replica_of(tmp_path, [], api_key_env=KEY))
    for header in ("", "Bearer", "Bearer secret", "Basic secret-ä", "Bearer \xff"):
        reply = await client.send("GET", "/v1/models", headers={"Authorization": header.encode()})
        assert (reply.status_code, "secret" in reply.text) == (401, False)
    accepted = await client.send("GET", "/v1/models", headers={"Authorization": "bearer secret-ä".encode()})
    assert accepted.status_code == 200
    assert [model["id"] for model in accepted.json()["data"]] == ["scripted"]


async def test_a_client_that_leaves_a_stream_stops_the_engine(tmp_path: Path) -> None:
    replica = replica_of(tmp_path, [{"text": "a b c", "deltas": 3, "gate": "never"}])
    sent = asyncio.Queue[MutableMapping[str, Any]]()
    body = json.dumps({"messages": HI, "stream": True}).encode()
    requests = asyncio.Queue[MutableMapping[str, Any]]()
    requests.put_nowait({"type": "http.request", "body": body, "more_body": False})
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [], "query_string": b""}
    closed = asyncio.Event()
    stream = replica._engine.stream

    async def watched(request: Any) -> AsyncGenerator[Any, None]:
        try:
            async for chunk in stream(request):
                yield chunk
        finally:
            closed.set()

    replica._engine.stream = watched  # type: ignore[method-assign]
    response = await replica(Request(scope, requests.get))
    answering = asyncio.create_task(response(scope, requests.get, sent.put))
    async with asyncio.timeout(10):
        while b'"a"' not in (await sent.get()).get("body", b""):
            pass
        assert not closed.is_set()
        requests.put_nowait({"type": "http.disconnect"})
        await closed.wait()
        await answering


async def test_a_replica_whose_model_does_not_load_is_not_healthy(tmp_path: Path) -> None:
    settings = {"model": "no-such-model", "cache_dir": str(tmp_path), "local_only": True}
    replica = ModelReplica(ReplicaOptions.from_args({"settings": settings}))
    for _ in range(2):
        with pytest.raises((UnknownModel, ModelMissing)):
            await replica.check_health()
    await replica._engine.aclose()
    healthy = replica_of(tmp_path, [{"text": "Hello."}])
    await healthy.check_health()
    assert (await Client(healthy).complete()).json()["choices"][0]["message"]["content"] == "Hello."


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"model": "tiny"}, "not model"),
        ({"settings": []}, "settings must be an object"),
        ({"settings": {"modle": "tiny"}}, "modle"),
        ({"api_key_env": 3}, "api_key_env a text"),
    ],
)
def test_arguments_that_are_not_known_are_refused(args: dict[str, Any], words: str) -> None:
    with pytest.raises(AgentKernelError, match=words):
        build(args)

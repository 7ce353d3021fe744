"""Tests requests that are sent again with their idempotency key, by the official clients, on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, Json, followed

PYTHON = {"name": "python", "arguments": {"code": "open('n', 'a').write('x'); len(open('n').read())"}}
SCRIPT: list[Json] = [
    {"text": "", "calls": [PYTHON], "when": "code"},
    {"text": "word " * 20, "deltas": 20, "delay": 0.05, "when": "slow", "loop": True},
    {"text": "It begins", "fault": "hang", "when": "hang", "loop": True},
    {"text": "", "fault": "out of order", "when": "flaky"},
    {"text": "Hello.", "loop": True},
]
REPLAYED = "idempotent-replayed"


def key(name: str) -> dict[str, str]:
    return {"Idempotency-Key": name}


async def chat(client: httpx.AsyncClient, said: str, name: str, **body: Any) -> httpx.Response:
    body = {"model": "default", "messages": [{"role": "user", "content": said}], **body}
    return await client.post("agent/v1/chat/completions", json=body, headers=key(name))


def answer_text(reply: httpx.Response) -> str:
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["message"]["content"])


async def turns_ended(client: httpx.AsyncClient) -> int:
    """Return the number of ended turns in the metrics."""
    lines = (await client.get("agent/v1/metrics")).text.splitlines()
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith("agent_kernel_turns_total{"))


@contextlib.asynccontextmanager
async def begins(client: httpx.AsyncClient, count: int) -> AsyncIterator[None]:
    """Check that exactly ``count`` turns start in the body."""
    before = await turns_ended(client)
    yield
    assert await turns_ended(client) == before + count


async def test_a_request_that_comes_again_is_answered_by_the_same_turn(server: AgentServer) -> None:
    async with server.client() as client, begins(client, 1):
        first, second = [await chat(client, "hello", "same") for _ in range(2)]
        assert answer_text(first) == answer_text(second) == "Hello."
        assert (first.headers.get(REPLAYED), second.headers.get(REPLAYED)) == (None, "true")
        assert first.json()["usage"] == second.json()["usage"]


async def test_a_stream_comes_again_as_it_was(server: AgentServer) -> None:
    async with server.client() as client, begins(client, 1):
        replies = [await chat(client, "slow", "stream", stream=True) for _ in range(2)]
        texts = [
            "".join(
                str(httpx.Response(200, text=line[6:]).json()["choices"][0]["delta"].get("content") or "")
                for line in reply.text.splitlines()
                if line.startswith("data: {") and httpx.Response(200, text=line[6:]).json().get("choices")
            )
            for reply in replies
        ]
        assert texts[0] == texts[1]
        assert texts[0].startswith("word word")
        assert all(reply.text.rstrip().endswith("data: [DONE]") for reply in replies)


async def test_duplicates_that_come_at_once_join_one_turn(server: AgentServer) -> None:
    async with server.client() as client, begins(client, 1):
        replies = await asyncio.gather(*(chat(client, "slow", "together") for _ in range(8)))
        assert len({answer_text(reply) for reply in replies}) == 1
        assert sum(REPLAYED in reply.headers for reply in replies) == 7


async def test_a_key_that_comes_with_another_request_is_refused(server: AgentServer) -> None:
    async with server.client() as client, begins(client, 1):
        await chat(client, "hello", "mine")
        other = await chat(client, "hello!", "mine")
        assert other.status_code == 409
        assert other.headers["x-should-retry"] == "false"
        elsewhere = await client.post("agent/v1/turns", json={"prompt": "hello", "session": "k"}, headers=key("mine"))
        assert elsewhere.status_code == 409
        assert elsewhere.json()["error"]["code"] == "key_reused"


@pytest.mark.parametrize("bad", ["", "x" * 256, "a\tb"])
async def test_a_key_has_a_form(server: AgentServer, bad: str) -> None:
    async with server.client() as client:
        assert (await chat(client, "hello", bad)).status_code == 400


async def test_a_start_that_failed_leaves_the_key_free(server: AgentServer) -> None:
    async with server.client() as client, begins(client, 1):
        refused = [await chat(client, "hello", "later", session_id="here", model="none such") for _ in range(2)]
        assert {reply.status_code for reply in refused} == {404}
        assert answer_text(await chat(client, "hello", "later")) == "Hello."


async def test_a_turn_that_failed_before_it_did_anything_is_begun_again(server: AgentServer) -> None:
    async with server.client() as client, begins(client, 2):
        assert (await chat(client, "flaky", "again")).status_code == 503
        assert answer_text(await chat(client, "flaky", "again")) == "Hello."
        assert answer_text(await chat(client, "flaky", "again")) == "Hello."


IMPATIENT = httpx.Timeout(60, read=0.5)


async def test_a_client_that_lost_its_connection_finds_its_turn_again(server: AgentServer) -> None:
    async with server.client() as client, begins(client, 1):
        body = {"model": "agent/default", "messages": [{"role": "user", "content": "code slow"}]}
        with pytest.raises(httpx.ReadTimeout):
            await client.post("agent/v1/chat/completions", json=body, headers=key("lost"), timeout=IMPATIENT)
        reply = await client.post("agent/v1/chat/completions", json=body, headers=key("lost"))
        assert reply.headers[REPLAYED] == "true"
        assert answer_text(reply).startswith("word word")
        calls = reply.json().get("agentic_tool_calls")
        assert calls is not None
        assert len(calls) == 1


async def test_openais_client_repeats_its_key_when_it_tries_again(server: AgentServer) -> None:
    async with server.client() as counting, begins(counting, 1):
        client = openai.AsyncOpenAI(
            base_url=server.agent_url, api_key="test-token", max_retries=8, timeout=openai.Timeout(60, read=0.8)
        )
        async with client:
            answer = await client.chat.completions.create(
                model="default",
                messages=[{"role": "user", "content": "slow, by a client"}],
                extra_headers=key("of openai"),
            )
        assert str(answer.choices[0].message.content).startswith("word word")


async def test_a_completion_that_comes_again_is_the_same_also_later(server: AgentServer) -> None:
    client = openai.AsyncOpenAI(base_url=server.agent_url, api_key="test-token")
    messages: list[Any] = [{"role": "user", "content": "hello"}]

    async def streamed(name: str) -> list[Any]:
        stream = await client.chat.completions.create(
            model="default", messages=messages, stream=True, extra_headers=key(name)
        )
        return [chunk async for chunk in stream]

    async with client:
        first = await client.chat.completions.create(model="default", messages=messages, extra_headers=key("equal"))
        chunks = await streamed("equal chunks")
        await asyncio.sleep(1.1)  # ``created`` is in whole seconds
        again = await client.chat.completions.create(model="default", messages=messages, extra_headers=key("equal"))
        assert again == first
        assert await streamed("equal chunks") == chunks
    assert abs(first.created - time.time()) < 3_600


async def test_responses_and_messages_have_keys_too(server: AgentServer) -> None:
    async with server.client() as counting, begins(counting, 2):
        openais = openai.AsyncOpenAI(base_url=server.agent_url, api_key="test-token")
        anthropics = anthropic.AsyncAnthropic(base_url=server.url + "agent", api_key="test-token")
        async with openais, anthropics:
            responses = [
                await openais.responses.create(model="default", input="hello", extra_headers=key("r")) for _ in range(2)
            ]
            messages = [
                await anthropics.messages.create(
                    model="default",
                    max_tokens=50,
                    messages=[{"role": "user", "content": "hello"}],
                    extra_headers=key("m"),
                )
                for _ in range(2)
            ]
        assert messages[0] == messages[1]
        assert responses[0].id == responses[1].id
        assert {response.output_text for response in responses} == {"Hello."}
        assert [message.content[0].type for message in messages] == ["text", "text"]


async def test_a_native_turn_has_a_key(server: AgentServer) -> None:
    async with server.client() as client, begins(client, 1):
        body = {"prompt": "hello", "session": "keyed"}
        first, second = [await client.post("agent/v1/turns", json=body, headers=key("n")) for _ in range(2)]
        assert (first.status_code, second.status_code) == (202, 202)
        assert first.json() == second.json()
        await followed(client, first.json()["turn"])


async def test_keys_of_different_credentials_are_different(server: AgentServer) -> None:
    kernel = await server.start_kernel("keys.ipynb")
    async with (
        server.client() as client,
        server.kernel_client(await server.kernel_token(kernel)) as notebook,
        begins(client, 2),
    ):
        body = {"prompt": "hello"}
        replies = [await who.post("agent/v1/turns", json=body, headers=key("both")) for who in (client, notebook)]
        assert len({reply.json()["turn"] for reply in replies}) == 2
        for who, reply in zip((client, notebook), replies, strict=True):
            await followed(who, reply.json()["turn"])


async def test_a_key_lasts_over_a_restart_and_a_kill_and_runs_no_tool_twice(agent_server: ServerFactory) -> None:
    server = await agent_server(SCRIPT)
    body = {"prompt": "code", "session": "kept"}
    async with server.client() as client:
        first = await client.post("agent/v1/turns", json=body, headers=key("done"))
        await followed(client, first.json()["turn"])
        named = await chat(client, "hello", "chat", session_id="chatted")
        unnamed = await chat(client, "hello", "unnamed")
        hangs = await client.post("agent/v1/turns", json={"prompt": "hang", "session": "h"}, headers=key("hangs"))
        await asyncio.sleep(0.3)
    await server.kill()
    server.sweep()
    await server.start()
    async with server.client() as client:
        second = await client.post("agent/v1/turns", json=body, headers=key("done"))
        assert second.json() == first.json()
        again = await chat(client, "hello", "chat", session_id="chatted")
        assert again.headers[REPLAYED] == "true"
        assert answer_text(again) == answer_text(named)
        assert again.json()["session_id"] == named.json()["session_id"]
        assert answer_text(unnamed) == "Hello."
        gone = await chat(client, "hello", "unnamed")
        assert gone.status_code == 409
        assert "no longer stored" in gone.text
        begun = await client.post("agent/v1/turns", json={"prompt": "hang", "session": "h"}, headers=key("hangs"))
        assert begun.status_code == 202
        assert begun.json()["turn"] != hangs.json()["turn"], "it did nothing before the kill, so it begins again"
        await client.delete("agent/v1/sessions/chatted")
        assert (await chat(client, "hello", "chat", session_id="chatted")).status_code == 409

"""Tests the limits for clients: every route of turns counts once, and each refusal has the format of its dialect."""

from __future__ import annotations

import asyncio

import anthropic
import httpx
import openai
import pytest

from tests.jupyter_ext.api.mcp.test_endpoint import client as mcp_client
from tests.jupyter_ext.api.mcp.test_endpoint import said
from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, Json, followed, wait_for_event

SCRIPT: list[Json] = [
    {"text": "It begins", "fault": "hang", "when": "hang", "loop": True},
    {"text": "Hello there.", "loop": True},
]
TOKEN = "test-token"


async def used_amount(client: httpx.AsyncClient, what: str = "requests_per_minute") -> int:
    return int((await client.get("agent/v1/usage")).json()[what]["used"])


async def mcp_turn(server: AgentServer) -> str:
    async with mcp_client(server) as mcp:
        return said(await mcp.call_tool("agent", {"prompt": "hello"}))


async def test_every_way_to_a_turn_counts_once_and_is_refused_as_its_clients_read_it(
    agent_server: ServerFactory,
) -> None:
    server = await agent_server(SCRIPT, traits={"user_requests_per_minute": 5})
    openais = openai.AsyncOpenAI(base_url=server.agent_url, api_key=TOKEN, max_retries=0)
    anthropics = anthropic.AsyncAnthropic(base_url=server.url + "agent", api_key=TOKEN, max_retries=0)

    async def asked(client: httpx.AsyncClient) -> list[object]:
        native = await client.post("agent/v1/turns", json={"prompt": "hello", "session": "s"})
        if native.status_code == 202:
            await followed(client, native.json()["turn"])
        hello = [{"role": "user", "content": "hello"}]
        replies: list[object] = [native]
        for call in (
            openais.chat.completions.create(model="default", messages=hello),  # type: ignore[arg-type]
            openais.responses.create(model="default", input="hello"),
            anthropics.messages.create(model="default", max_tokens=9, messages=hello),  # type: ignore[arg-type]
        ):
            try:
                replies.append(await call)
            except (openai.APIStatusError, anthropic.APIStatusError) as error:
                replies.append(error)
        return [*replies, await mcp_turn(server)]

    async with server.client() as client, openais, anthropics:
        await asked(client)
        assert await used_amount(client) == 5
        native, chat, response, message, tool = await asked(client)
        assert await used_amount(client) == 5
    assert isinstance(native, httpx.Response)
    assert native.status_code == 429
    assert 1 <= int(native.headers["retry-after"]) <= 60
    told = native.json()["error"]
    assert (told["code"], told["details"]["limit"]) == ("too_many_requests", "user_requests_per_minute")
    assert "Ask again in" in told["hint"]
    for error in (chat, response):
        assert isinstance(error, openai.RateLimitError)
        assert "5 are allowed" in str(error)
        assert error.response.headers["retry-after"]
    assert isinstance(message, anthropic.RateLimitError)
    assert message.body["error"]["type"] == "rate_limit_error"  # type: ignore[index]
    assert "5 are allowed" in str(tool)


async def test_an_official_client_waits_as_it_is_told_and_then_gets_its_answer(agent_server: ServerFactory) -> None:
    server = await agent_server(SCRIPT, traits={"user_turns_at_once": 1})
    async with (
        server.client() as client,
        openai.AsyncOpenAI(base_url=server.agent_url, api_key=TOKEN, max_retries=5) as openais,
    ):
        holds = (await client.post("agent/v1/turns", json={"prompt": "hang", "session": "s"})).json()["turn"]
        asking = asyncio.create_task(
            openais.chat.completions.create(model="default", messages=[{"role": "user", "content": "hello"}])
        )
        await asyncio.sleep(0.3)
        assert not asking.done()
        await client.post(f"agent/v1/turns/{holds}/cancel", json={})
        assert (await asking).choices[0].message.content == "Hello there."


async def test_a_budget_lasts_over_a_restart_and_a_spent_one_is_not_asked_of_again(
    agent_server: ServerFactory,
) -> None:
    server = await agent_server(SCRIPT, traits={"user_tokens_per_day": 1})
    body = {"model": "default", "messages": [{"role": "user", "content": "hello"}]}
    async with server.client() as client:
        answer = await client.post("agent/v1/chat/completions", json=body)
        cost = answer.json()["usage"]["total_tokens"]
        assert await used_amount(client, "tokens_per_day") == cost
    await server.kill()
    server.sweep()
    await server.start()
    async with server.client() as client:
        assert await used_amount(client, "tokens_per_day") == cost
        refused = await client.post("agent/v1/chat/completions", json=body)
        assert refused.status_code == 429
        assert refused.headers["x-should-retry"] == "false"
        assert int(refused.headers["retry-after"]) > 3600
        assert not (await client.get("agent/v1/sessions")).json()["sessions"]


@pytest.mark.parametrize("path", ["chat/completions", "turns"])
async def test_a_full_line_is_503_and_leaves_nothing_behind(agent_server: ServerFactory, path: str) -> None:
    server = await agent_server(SCRIPT, traits={"turns_at_once": 1, "turns_waiting": 1})
    body = {"model": "default", "messages": [{"role": "user", "content": "hello"}]}
    async with server.client() as client:
        holds = await client.post("agent/v1/turns", json={"prompt": "hang", "session": "a"})
        await wait_for_event(client, holds.json()["turn"], "text.delta")
        await client.post("agent/v1/turns", json={"prompt": "hello", "session": "b"})
        if path == "turns":
            body = {"prompt": "hello"}
        refused = await client.post(f"agent/v1/{path}", json=body)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert refused.json()["error"]["code"] == "engine_busy"


async def test_a_person_has_no_limits_but_is_told_so(server: AgentServer) -> None:
    async with server.client() as client:
        told = (await client.get("agent/v1/usage")).json()
    none = {"allowed": 0, "used": None}
    assert told["tokens_per_day"] == told["tokens_per_hour"] == none
    assert told["requests_per_minute"]["allowed"] == told["turns_at_once"]["allowed"] == 0
    assert told["token"] is None

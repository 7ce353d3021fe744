"""Tests MCP servers of a real server's configuration: a turn asks, a user answers, and no process remains."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.server import TOKEN, AgentServer, Json, followed, start_turn, text_of, wait_for_event
from tests.tools.mcp.conftest import SERVERS
from tests.waiting import until

SCRIPT: list[Json] = [
    {"text": "", "calls": [{"name": "p_unasked", "arguments": {"n": 7}}], "when": "call it"},
    {"text": "", "calls": [{"name": "p_unasked", "arguments": {"n": 7}}], "when": "nobody"},
    {"text": "done", "loop": True},
]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AgentServer]:
    config, log = tmp_path / "mcp.json", tmp_path / "plain.log"
    entry = {"command": sys.executable, "args": [str(SERVERS / "plain.py"), str(log)], "env": {"KEY": "${PLAIN_KEY}"}}
    config.write_text(json.dumps({"mcpServers": {"p": entry}}))
    traits = {"tools": "mcp", "mcp_config": str(config)}
    made = AgentServer(tmp_path / "server", SCRIPT, traits, env={"PLAIN_KEY": "hush-hush-key"})
    try:
        yield await made.start()
    finally:
        await made.kill()
        made.sweep()


def processes(log: Path) -> list[int]:
    lines = log.read_text().splitlines() if log.exists() else []
    return list(dict.fromkeys(int(line.split()[0]) for line in lines))


async def test_a_call_is_asked_for_and_its_server_ends_with_ours(server: AgentServer, tmp_path: Path) -> None:
    log = tmp_path / "plain.log"
    # It started with the first turn that wanted it; the first turn waited, and API clients saw no tools before.
    await until(lambda: bool(processes(log)))
    async with server.client() as client:
        turn = await start_turn(client, "call it", answers=["*"])
        asked = (await wait_for_event(client, turn["turn"], "approval.required"))["data"]
        assert (asked["name"], asked["kind"], asked["source"], asked["label"]) == (
            *("p_unasked", "mcp", "mcp"),
            "p: unasked",
        )
        assert not [line for line in log.read_text().splitlines() if "tools/call" in line]
        reply = await client.post(f"agent/v1/agent/approvals/{asked['approval']}", json={"decision": "approve"})
        assert reply.status_code == 200
        events = await followed(client, turn["turn"])
        finished = next(event["data"] for event in events if event["type"] == "call.finished")
        assert (finished["status"], finished["text"]) == ("success", 'unasked {"n": 7}')
        assert text_of(events) == "done"

        alone = await followed(client, (await start_turn(client, "nobody"))["turn"])
        denied = next(event["data"] for event in alone if event["type"] == "call.finished")
        assert denied["status"] == "denied", "where nobody can answer it does not run"
    assert len(processes(log)) == 1, "the server is kept"
    assert "hush-hush-key" not in server.log.read_text()
    await server.kill()
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes(log)))


MISSING: list[Json] = [{"text": "Hello.", "loop": True}]


async def test_clients_are_told_which_tools_are_missing_and_health_knows_before(tmp_path: Path) -> None:
    """By the official clients, whole and streamed, in every dialect."""
    plain = {"command": sys.executable, "args": [str(SERVERS / "plain.py"), str(tmp_path / "plain.log")]}
    config = {"mcpServers": {"up": plain, "down": {"command": str(tmp_path / "no-such-program")}}}
    (tmp_path / "mcp.json").write_text(json.dumps(config))
    server = AgentServer(
        tmp_path / "server", MISSING, {"tools": "mcp", "mcp_config": str(tmp_path / "mcp.json")}, env={"KEY": "k"}
    )
    try:
        await server.start()
        async with server.client() as client:
            for _ in range(200):
                health = (await client.get("agent/v1/health")).json()
                if all(row["state"] != "starting" for row in health["mcp_servers"]):
                    break
                await asyncio.sleep(0.1)
            rows = {row["name"]: row for row in health["mcp_servers"]}
            assert (rows["up"]["state"], rows["up"]["problem"]) == ("connected", "")
            assert rows["up"]["tools"] > 5
            left_out = " ".join(rows["up"]["left_out"])
            assert "broken (its schema is not valid)" in left_out
            assert "patient (it can only run as a task" in left_out
            assert (rows["down"]["state"], rows["down"]["tools"]) == ("failed", 0)
            assert rows["down"]["problem"]
            assert health["status"] == "degraded", "tools of the configuration are missing"
            assert (await client.get("agent/v1/models")).json()["mcp_servers"] == health["mcp_servers"]
        given: Any = {"api_key": TOKEN, "max_retries": 0}
        ours = openai.AsyncOpenAI(base_url=server.agent_url, **given)
        theirs = anthropic.AsyncAnthropic(base_url=f"{server.url}agent", **given)
        said: Any = [{"role": "user", "content": "hi"}]
        async with ours, theirs:
            chat: Any = await ours.chat.completions.create(model="agent/default", messages=said)
            response: Any = await ours.responses.create(model="agent/default", input="hi")
            message: Any = await theirs.messages.create(model="agent/default", max_tokens=9, messages=said)
            for answer in (chat, response, message):
                told = " ".join(notice["text"] for notice in answer.notices)
                assert "MCP server down cannot be used" in told
                assert "patient" in told
            request: Any = {"model": "agent/default", "stream": True, "extra_body": {"max_tool_rounds": 9}}
            chunks: Any = await ours.chat.completions.create(messages=said, **request)
            assert [one.type async for one in chunks if getattr(one, "type", "")].count("agentic_notice") == 2
            events: Any = await ours.responses.create(input="hi", **request)
            assert [one.type async for one in events].count("agentic_notice") == 2
            parts: Any = await theirs.messages.create(model="agent/default", max_tokens=9, messages=said, stream=True)
            assert [one.type async for one in parts].count("message_stop") == 1, "the client reads to the end"
    finally:
        await server.kill()
        server.sweep()

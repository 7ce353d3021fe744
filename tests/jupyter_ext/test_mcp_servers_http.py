"""MCP servers of a real server's configuration: a turn asks, a person answers, and nothing is left behind."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server import AgentServer, Json, followed, start_turn, text_of, wait_for_event
from tests.tools.mcp.conftest import SERVERS, until

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
    assert processes(log) == [], "it starts with the first turn that wants it"
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

"""Tests the permission matrix: the server's setting x the request's x every kind of tool x every route that starts a
turn.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from agent_kernel.core.events import ApprovalRequired
from agent_kernel.core.session import SessionKey
from agent_kernel.core.settings import Settings
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.permissions import Answer, Approvals, Gate
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent
from agent_kernel.turn.server_runtime import Runtime
from tests.jupyter_ext.probe_tools import EVERY, KINDS, UNKNOWN, Probe, Probes, name_of
from tests.server import TOKEN, AgentServer, Json, follow, followed, start_turn

MODES = ("auto", "ask", "deny")
"""From free to strict: the stricter of two wins."""
HTTP = ("turns", "sessions/{id}/turns", "turns of a kernel")
IN_PROCESS = ("runtime", "agent")
MCP = "mcp"
CALLS: Json = {"calls": [{"name": name_of(kind), "arguments": {}} for kind in EVERY]}
SAID = "not in this test"


def expected_outcome(server: str, request: str, kind: str) -> str:
    """Return the outcome that the permission rules require: the strictest of the three modes."""
    default = "auto" if kind in KINDS["auto"] else "ask"
    return max(server, request, default, key=MODES.index)


@dataclass
class Seen:
    """What happened to each kind of tool in one turn."""

    asked: set[str] = field(default_factory=set)
    results: dict[str, tuple[str, str]] = field(default_factory=dict)

    def hears(self, event: Json) -> None:
        data = event["data"]
        if event["type"] == "approval.required":
            self.asked.add(data["name"])
        elif event["type"] == "call.finished":
            self.results[data["name"]] = (data["status"], data["text"])

    def outcome(self, kind: str) -> str:
        name = name_of(kind)
        status, text = self.results[name]
        if name in self.asked:
            assert (status, text) == ("denied", f"This call did not run: denied: {SAID}.")
            return "ask"
        if status == "denied":
            if "nobody can answer here" in text:
                return "nobody"
            assert "denied by policy" in text
            return "deny"
        assert (status, text) == ("success", "it ran")
        return "auto"


@dataclass
class World:
    server: AgentServer
    kernel_token: str = ""


async def _begin(mode: str, directory: Path) -> World:
    script = [entry for word in _words() for entry in ({"when": word, **CALLS}, {"when": word, "text": "Done."})]
    server = AgentServer(
        directory,
        script,
        traits={"permission": mode, "tools": "recall"},
        extensions=["tests.jupyter_ext.probe_tools"],
    )
    await server.start()
    kernel = await server.start_kernel("matrix.ipynb")
    return World(server, await server.kernel_token(kernel))


def _words() -> Iterator[str]:
    for request, route in itertools.product(MODES, HTTP):
        yield _word(request, route)
    yield _word("auto", MCP)


def _word(request: str, route: str) -> str:
    return f"{request} by {route}."


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, World]]:
    directories = {mode: tmp_path_factory.mktemp(mode) for mode in MODES}

    async def begin() -> list[World]:
        return await asyncio.gather(*(_begin(mode, directory) for mode, directory in directories.items()))

    made: list[World] = []
    try:
        made = asyncio.run(begin())
        yield dict(zip(MODES, made, strict=True))
    finally:
        for world in made:
            world.server.sweep()


@pytest.mark.parametrize("route", HTTP)
@pytest.mark.parametrize("request_", MODES)
@pytest.mark.parametrize("server", MODES)
async def test_every_route_of_the_server_keeps_the_table(
    worlds: dict[str, World], server: str, request_: str, route: str
) -> None:
    world = worlds[server]
    token = {"X-Agent-Kernel-Token": world.kernel_token}
    async with world.server.client() as user, world.server.client(None, token) as kernel:
        client = kernel if route == "turns of a kernel" else user
        seen = await _turn(client, _word(request_, route), request_, route)
    assert {kind: seen.outcome(kind) for kind in EVERY} == {
        kind: expected_outcome(server, request_, kind) for kind in EVERY
    }


async def _turn(client: httpx.AsyncClient, prompt: str, permission: str, route: str) -> Seen:
    body: Json = {"prompt": prompt, "permission": permission, "answers": ["*"]}
    if route == "sessions/{id}/turns":
        reply = await client.post(f"agent/v1/sessions/{permission}/turns", json=body)
        assert reply.status_code == 202, reply.text
        turn = reply.json()["turn"]
    else:
        turn = (await start_turn(client, **body))["turn"]
    seen = Seen()
    async for event in follow(client, turn):
        seen.hears(event)
        if event["type"] == "approval.required":
            answer = {"decision": "deny", "message": SAID, "shown": event["data"]["shown"]}
            reply = await client.post(f"agent/v1/agent/approvals/{event['data']['approval']}", json=answer)
            assert reply.json()["status"] == "resolved"
    return seen


@pytest.mark.parametrize("server", MODES)
async def test_the_mcp_endpoint_keeps_the_table_for_every_kind_that_its_client_can_be_asked_for(
    worlds: dict[str, World], server: str
) -> None:
    """Its requests have no mode of their own."""

    async def ask(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"decision": "deny", "message": SAID})

    world = worlds[server]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
        transport = streamable_http_client(f"{world.server.agent_url}mcp", http_client=http)
        async with McpClient(transport, mode="legacy", cache=None, elicitation_callback=ask) as client:
            answer = await client.call_tool("agent", {"prompt": _word("auto", MCP)})
    seen = Seen()
    async with world.server.client() as user:
        for event in await followed(user, answer.structured_content["turn"]):
            seen.hears(event)
    table = {kind: expected_outcome(server, "auto", kind) for kind in EVERY}
    if server != "deny":
        table[UNKNOWN] = "nobody"
    assert {kind: seen.outcome(kind) for kind in EVERY} == table


@pytest.mark.parametrize("route", IN_PROCESS)
@pytest.mark.parametrize("request_", MODES)
@pytest.mark.parametrize("server", MODES)
async def test_every_way_in_python_keeps_the_table(server: str, request_: str, route: str, tmp_path: Path) -> None:
    seen = await (_of_runtime if route == "runtime" else _of_agent)(server, request_, tmp_path)
    assert {kind: seen.outcome(kind) for kind in EVERY} == {
        kind: expected_outcome(server, request_, kind) for kind in EVERY
    }


async def _of_runtime(server: Any, request: Any, directory: Path) -> Seen:
    """Run a turn as a server does, without HTTP."""
    (directory / "script.json").write_text(json.dumps([CALLS, {"text": "Done."}]))
    settings = Settings(
        engine="scripted",
        script=str(directory / "script.json"),
        data_dir=directory,
        store="memory",
        permission=server,
        tools="recall",
    )
    runtime = Runtime.build(settings)
    runtime.sources.append(Probes())
    asked = TurnRequest("go", permission=request, answers=frozenset("*"))
    seen = Seen()
    async with aclosing(runtime.agent(SessionKey("local", "s"), asked).stream(asked)) as events:
        async for event in events:
            if isinstance(event.body, ApprovalRequired):
                await runtime.approvals.answer("local", event.body.approval, Answer("deny", message=SAID))
            seen.hears(event.to_json())
    await runtime.aclose()
    return seen


async def _of_agent(server: Any, request: Any, directory: Path) -> Seen:
    """Run a turn as a program with its own agent does, and deny its questions."""
    gate = Gate(Approvals(), server, request, ask=lambda question: Answer("deny", message=SAID))
    agent = Agent(MemoryStore(), ScriptedEngine([CALLS, {"text": "Done."}]), "s", list(map(Probe, EVERY)), gate=gate)
    seen = Seen()
    async with aclosing(agent.stream("go")) as events:
        async for event in events:
            seen.hears(event.to_json())
    return seen

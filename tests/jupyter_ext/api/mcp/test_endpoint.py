"""``agent/v1/mcp`` with the official SDK's client, in both generations of the protocol, against a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from tests.server import TOKEN, AgentServer, Json

CODE = {"name": "python", "arguments": {"code": "print(6 * 7)"}}
GENERATIONS = ("legacy", "auto")
COMPUTED = 20
prompts = iter(f"compute ({n})" for n in range(COMPUTED))
"""Each is answered by one call, once."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServer]:
    """A server on which every call needs approval."""
    calls: list[Json] = [{"text": "let me see", "calls": [CODE], "when": f"compute ({n})"} for n in range(COMPUTED)]
    script = [*calls, {"text": "it is 42", "loop": True}]
    traits = {"tools": "python", "permission": "ask", "approval_timeout_s": 60.0}
    with AgentServer(tmp_path_factory.mktemp("mcp"), script, traits) as made:
        asyncio.run(made.start())
        yield made
        assert asyncio.run(made.stop()) == 0, "it ends cleanly"


@asynccontextmanager
async def client(server: AgentServer, mode: str = "auto", **given: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
        transport = streamable_http_client(f"{server.agent_url}mcp", http_client=http)
        async with Client(transport, mode=mode, cache=None, **given) as made:
            yield made


def said(result: Any) -> str:
    return "".join(part.text for part in result.content)


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_a_client_asks_the_agent_and_reads_the_conversation(server: AgentServer, mode: str) -> None:
    async with client(server, mode) as mcp:
        names = [tool.name for tool in (await mcp.list_tools()).tools]
        assert names == ["agent", "list_sessions", "read_session", "read_notebook"]
        answer = await mcp.call_tool("agent", {"prompt": "hello"})
        assert (said(answer), answer.is_error) == ("it is 42", False)
        session = answer.structured_content["session"]
        again = await mcp.call_tool("agent", {"prompt": "again", "session": session})
        assert again.structured_content["session"] == session
        listed = await mcp.call_tool("list_sessions", {})
        assert session in [row["id"] for row in listed.structured_content["sessions"]]
        read = said(await mcp.call_tool("read_session", {"session": session}))
        assert read.startswith("user: hello\n\nassistant: it is 42\n\nuser: again")


@pytest.mark.parametrize("mode", GENERATIONS)
@pytest.mark.parametrize(("decision", "ran"), [("allow once", "success"), ("deny", "denied")])
async def test_a_client_that_can_ask_its_person_does(server: AgentServer, mode: str, decision: str, ran: str) -> None:
    asked: list[str] = []

    async def ask(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"decision": decision, "message": "not today"})

    lines: list[str] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        lines.append(message or "")

    async with client(server, mode, elicitation_callback=ask) as mcp:
        answer = await mcp.call_tool("agent", {"prompt": next(prompts)}, progress_callback=progress)
    assert said(answer) == "it is 42"
    assert answer.structured_content["calls"] == [{"name": "python", "status": ran}]
    assert len(asked) == 1
    assert "print(6 * 7)" in asked[0]
    assert "running python" in lines


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_without_a_person_at_the_client_the_panel_may_answer(server: AgentServer, mode: str) -> None:
    async with client(server, mode) as mcp, server.client() as panel:
        asking = asyncio.create_task(mcp.call_tool("agent", {"prompt": next(prompts)}))
        waiting: list[Json] = []
        while not waiting:
            waiting = (await panel.get("agent/v1/agent/approvals")).json()["approvals"]
            await asyncio.sleep(0.02)
        path = f"agent/v1/agent/approvals/{waiting[0]['approval']}"
        assert (await panel.post(path, json={"decision": "approve"})).status_code == 200
        answer = await asking
    assert answer.structured_content["calls"] == [{"name": "python", "status": "success"}]


async def test_when_nobody_answers_it_is_no_and_the_turn_goes_on(tmp_path: Path) -> None:
    traits = {"tools": "python", "permission": "ask", "approval_timeout_s": 1.0}
    script: list[Json] = [{"text": "let me see", "calls": [CODE], "when": "compute"}, {"text": "it is 42"}]
    made = AgentServer(tmp_path / "server", script, traits)
    made.directory.mkdir()
    with made:
        await made.start()
        async with client(made) as mcp:
            answer = await mcp.call_tool("agent", {"prompt": "compute"})
    assert answer.structured_content["calls"] == [{"name": "python", "status": "denied"}]
    assert said(answer) == "it is 42"


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_a_call_that_is_cancelled_stops_the_turn(server: AgentServer, mode: str) -> None:
    async with client(server, mode) as mcp, server.client() as panel:
        session = f"cancelled {mode}"
        asking = asyncio.create_task(mcp.call_tool("agent", {"prompt": next(prompts), "session": session}))
        while not (await panel.get("agent/v1/agent/approvals")).json()["approvals"]:
            await asyncio.sleep(0.02)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        turns: list[Json] = [{"state": "open"}]
        while turns[0]["state"] == "open":
            turns = (await panel.get(f"agent/v1/sessions/{session}/items")).json()["turns"]
            await asyncio.sleep(0.02)
        assert turns[0]["state"] == "cancelled"


async def test_a_turn_that_is_refused_leaves_no_session_behind(tmp_path: Path) -> None:
    made = AgentServer(tmp_path / "server", [{"text": "hello", "loop": True}], {"user_requests_per_minute": 1})
    made.directory.mkdir()
    with made:
        await made.start()
        async with client(made) as mcp:
            first = await mcp.call_tool("agent", {"prompt": "one"})
            refused = await mcp.call_tool("agent", {"prompt": "two"})
            assert (first.is_error, refused.is_error) == (False, True)
            named = await mcp.call_tool("agent", {"prompt": "two", "session": "mine"})
            assert named.is_error
            rows = (await mcp.call_tool("list_sessions", {})).structured_content["sessions"]
        assert [row["id"] for row in rows] == [first.structured_content["session"]]


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_mistakes_have_the_codes_of_the_protocol(server: AgentServer, mode: str) -> None:
    async with client(server, mode) as mcp:
        wrong: list[tuple[str, Json]] = [
            ("no_such_tool", {}),
            ("agent", {}),
            ("agent", {"prompt": "x", "evil": 1}),
            ("read_session", {"session": 7}),
        ]
        for name, arguments in wrong:
            with pytest.raises(MCPError) as raised:
                await mcp.call_tool(name, arguments)
            assert raised.value.code == -32602
        for arguments, code in [
            ({"prompt": "x", "notebook": "../../etc/passwd"}, "invalid_request"),
            ({"prompt": "x", "notebook": "none.ipynb"}, "not_found"),
        ]:
            answer = await mcp.call_tool("agent", arguments)
            assert (answer.is_error, answer.structured_content["error"]["code"]) == (True, code)
        lost = await mcp.call_tool("read_session", {"session": "nobody's"})
        assert lost.structured_content["error"]["code"] == "session_not_found"


async def test_a_notebooks_conversation_is_gone_on_with(server: AgentServer) -> None:
    await server.save_notebook("notes.ipynb")
    async with client(server) as mcp, server.client() as panel:
        answer = await mcp.call_tool("agent", {"prompt": "hello", "notebook": "notes.ipynb"})
        bound = (await panel.get("agent/v1/binding", params={"path": "notes.ipynb"})).json()
        assert bound["session"]["id"] == answer.structured_content["session"]


async def test_a_notebook_is_read_by_its_path(server: AgentServer) -> None:
    await server.save_notebook("cells.ipynb", "# Minerals\nall of them")
    async with client(server) as mcp:
        listed = await mcp.call_tool("read_notebook", {"notebook": "cells.ipynb"})
        assert ("# Minerals" in said(listed), listed.structured_content["cells"]) == (True, 1)
        cell = await mcp.call_tool("read_notebook", {"notebook": "/cells.ipynb", "cells": "0"})
        assert "all of them" in said(cell)
        for path in ("none.ipynb", "../cells.ipynb", "cells.txt", ".hidden/a.ipynb"):
            assert (await mcp.call_tool("read_notebook", {"notebook": path})).is_error


HEADERS = {"Accept": "application/json, text/event-stream", "Authorization": f"token {TOKEN}"}


async def raw(server: AgentServer, body: Any, headers: dict[str, str] | None = None) -> httpx.Response:
    async with server.client(None, headers=HEADERS | (headers or {})) as http:
        return await http.post("agent/v1/mcp", json=body)


async def new_session(server: AgentServer) -> dict[str, str]:
    """Open an MCP session and return its header."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    opened = await raw(server, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    return {"Mcp-Session-Id": opened.headers["Mcp-Session-Id"]}


async def test_what_is_no_message_and_what_is_no_method(server: AgentServer) -> None:
    session = await new_session(server)
    await raw(server, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
    unknown = await raw(server, {"jsonrpc": "2.0", "id": 2, "method": "no/such"}, session)
    assert code_of(unknown) == -32601
    wrong = await raw(server, {"jsonrpc": "1.0", "id": 3, "method": "ping"}, session)
    assert wrong.status_code == 400
    assert code_of(wrong) in (-32600, -32602)
    lost = await raw(server, {"jsonrpc": "2.0", "id": 4, "method": "ping"}, {"Mcp-Session-Id": "0" * 32})
    assert lost.status_code == 404
    async with server.client(None, headers=HEADERS | session) as http:
        for headers in ({}, {"Content-Type": "text/plain"}):
            untyped = await http.post("agent/v1/mcp", content=b'{"jsonrpc": "2.0"}', headers=headers)
            assert untyped.status_code == 400
            assert "application/json" in untyped.json()["error"]["hint"]
        assert (await http.delete("agent/v1/mcp")).status_code == 200
    assert (await raw(server, {"jsonrpc": "2.0", "id": 5, "method": "ping"}, session)).status_code == 404


def code_of(reply: httpx.Response) -> int:
    line = next((line[6:] for line in reply.text.splitlines() if line.startswith("data: {")), reply.text)
    code: int = json.loads(line)["error"]["code"]
    return code


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "token wrong"}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
    ],
)
async def test_strangers_and_pages_of_other_sites_are_refused(
    server: AgentServer, headers: dict[str, str], status: int
) -> None:
    reply = await raw(server, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers)
    assert reply.status_code == status
    assert "Mcp-Session-Id" not in reply.headers


async def test_a_notebooks_code_has_no_way_in(server: AgentServer) -> None:
    token = await server.kernel_token(await server.start_kernel("k.ipynb"))
    async with server.kernel_client(token) as kernel:
        reply = await kernel.post("agent/v1/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert reply.status_code == 403


async def test_a_body_of_more_than_4_mib_is_refused(server: AgentServer) -> None:
    reply = await raw(server, {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "x" * (5 << 20)}})
    assert reply.status_code == 413


@pytest.mark.parametrize("last", ["", "5", "x-1", "-1", "9" * 400])
async def test_a_stream_of_server_messages_begins_at_once(server: AgentServer, last: str) -> None:
    """Also after an event that this server did not send."""
    headers = HEADERS | {"Last-Event-ID": last} | await new_session(server)
    async with server.client(None) as http, http.stream("GET", "agent/v1/mcp", headers=headers, timeout=5) as stream:
        assert (stream.status_code, stream.headers["content-type"]) == (200, "text/event-stream")


async def test_sessions_that_their_clients_never_ended_leave_room_for_others(server: AgentServer) -> None:
    for _ in range(80):
        await new_session(server)
    assert (await raw(server, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, await new_session(server))).is_success

"""Tests servers made with the official SDK, as processes: standard input, streamable HTTP, and the old SSE."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.server import free_port
from tests.tools.mcp.conftest import SERVERS, Client, Made
from tests.waiting import until


async def check_results(client: Client, prefix: str) -> None:
    """Check one result of every kind."""
    assert (await client.call(f"{prefix}_add", a=2, b=3)).text == "5"
    weather = await client.call(f"{prefix}_weather", city="Bern")
    assert weather.details["structured"] == {"celsius": 21.5, "words": "mild in Bern"}
    picture = await client.call(f"{prefix}_picture")
    assert [(media.mime, media.size) for media in picture.media] == [("image/png", 70)]
    refused = await client.call(f"{prefix}_refuse")
    assert (refused.status, refused.text) == ("error", "no such thing")


@asynccontextmanager
async def start_server(how: str, log: Path) -> AsyncIterator[str]:
    """Start a server and yield its URL."""
    port = free_port()
    command = [sys.executable, str(SERVERS / "everything.py"), how, str(port)]
    with subprocess.Popen(command, env={**os.environ, "EVERYTHING_LOG": str(log)}, stderr=subprocess.DEVNULL) as server:
        try:
            await until(lambda: _listens(port))
            yield f"http://127.0.0.1:{port}/{'mcp' if how == 'http' else 'sse'}"
        finally:
            server.kill()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        reader = socket.create_connection(("127.0.0.1", port), 1)
        reader.close()
        return True
    return False


async def test_over_standard_input(made: Made) -> None:
    client = made({"mcpServers": {"e": made.everything(resources=["notes://to*"])}})
    await check_results(client, "e")
    assert (await client.call("e_read_resource", uri="notes://today")).text == "buy milk"
    other = await client.call("e_read_resource", uri="notes://secret")
    assert (other.status, "none of the resources" in other.text) == ("error", True)
    tools = await client.tools()
    assert "notes://today" in tools["e_read_resource"].spec.description
    assert "notes://secret" not in tools["e_read_resource"].spec.description


async def test_over_streamable_http_and_a_server_that_was_started_again(made: Made) -> None:
    async with start_server("http", made.log) as url:
        shape = {"name": "h", "source": {"type": "Http", "url": url}, "tool_prefix": "net"}
        client = made({"servers": [shape], "auto_register_tools": True})
        await check_results(client, "net")
        flood = await client.call("net_flood", megabytes=40)
        assert (flood.status, "more than 16 MiB" in flood.text) == ("error", True)
        assert (await client.call("net_add", a=1, b=1)).text == "2"
        await client.call("net_grow")
        connection = (await client.source.connections())[0]
        await until(lambda: any(tool.name == "grown" for tool in connection.listed.tools))  # type: ignore[union-attr]
        task = asyncio.create_task(client.call("net_slow", seconds=100))
        await until(lambda: "began" in made.log.read_text())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: "slow cancelled" in made.log.read_text())
        crashed = await client.call("net_crash", code=1)
        assert crashed.status == "error"
        assert "may have run, and was not tried again" in crashed.text


async def test_a_server_that_knows_the_old_transport_only_is_found_out(made: Made) -> None:
    async with start_server("sse", made.log) as url:
        client = made({"mcpServers": {"old": {"url": url}}})
        await check_results(client, "old")


async def test_a_server_that_forgot_the_session_is_asked_again_in_a_new_one(made: Made) -> None:
    """As after its restart, or half an hour of silence: it refused the call, so that nothing runs twice."""
    port = free_port()
    with subprocess.Popen([sys.executable, str(SERVERS / "plain_http.py"), str(port), str(made.log)]) as server:
        try:
            await until(lambda: _listens(port))
            client = made({"mcpServers": {"h": {"url": f"http://127.0.0.1:{port}/mcp"}}})
            assert (await client.call("h_count")).text == "count"
            assert (await client.call("h_forget")).text == "forget"
            assert (await client.call("h_count")).text == "count"
            assert client.heard == ["count", "forget", "count"]
        finally:
            server.kill()


async def test_local_only_lets_no_server_on_another_machine_be_asked(made: Made) -> None:
    client = made({"mcpServers": {"far": {"url": "https://mcp.example.com/mcp?key=sk-1234"}}}, local_only=True)
    assert await client.tools() == {}
    assert (
        "local_only is set: the MCP server far was refused, because it would connect to mcp.example.com"
        in client.notices[0]
    )
    assert "sk-1234" not in client.notices[0]


async def test_whatever_a_server_started_ends_with_this_process(made: Made, tmp_path: Path) -> None:
    """Also when nobody can say goodbye: the process is killed."""
    config = tmp_path / "mcp.json"
    code = f"""
import asyncio, json, sys
from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.tools.mcp.mcp_tools import McpTools
from agent_kernel.tools.base.tool_source import ToolSourceContext
from agent_kernel.core.session import SessionKey

async def main():
    source = McpTools({str(config)!r}, EgressPolicy())
    offered = await source.offer(ToolSourceContext(SessionKey("local", "s"), TurnRequest("x"), lambda body: None))
    spawn = next(tool for tool in offered.tools if tool.spec.name == "e_spawn")
    class Call: id, name = "c", "e_spawn"
    class Context: call = Call; emit = staticmethod(lambda body: None)
    print((await spawn.call({{}}, Context)).text, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""
    config.write_text(json.dumps({"mcpServers": {"e": made.everything()}}))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=SERVERS.parents[3])
    try:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        pids = [int(word) for word in line.split()]
        assert len(pids) == 2
        process.send_signal(signal.SIGKILL)
        process.wait()
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

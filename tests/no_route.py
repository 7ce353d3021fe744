"""Runs a whole turn with every tool that uses the network, in a network namespace without a route, and reports what it
tried.

unshare --net --map-root-user python -m tests.no_route DIRECTORY
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import socket
import struct
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.events import CallFinished, Notice, TurnFinished
from agent_kernel.core.protocols import ToolSpec
from agent_kernel.core.session import SessionKey
from agent_kernel.core.settings import Settings
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.turn.server_runtime import Runtime

SIOCSIFFLAGS, IFF_UP = 0x8914, 1
REMOTE = ToolSpec("remote", "", {"type": "object"}, kind="dispatch", source="external")
CALLS = [
    {"name": "python", "arguments": {"code": "6 * 7"}},
    {"name": "shell", "arguments": {"commands": ["echo $((6 * 7))"]}},
    {"name": "web_search", "arguments": {"query": "weather"}},
    {"name": "fetch_page", "arguments": {"url": "https://example.org/"}},
    {"name": "remote", "arguments": {}},
]
MCP = {"mcpServers": {"far": {"url": "https://mcp.example.org/mcp"}}}


def main(directory: Path) -> None:
    bring_up_loopback()
    tried: list[str] = []
    sys.addaudithook(lambda event, given: note(tried, event, given))
    told = {"local_only": asyncio.run(turn(directory / "a", local_only=True))}
    told["outbound"] = {"tried": list(tried)}
    told["open"] = asyncio.run(turn(directory / "b", local_only=False))
    print(json.dumps(told))


def bring_up_loopback() -> None:
    """Bring up the loopback interface, which is down in a new namespace, and check that no other network can be
    reached.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
        assert control.connect_ex(("192.0.2.1", 9)) == errno.ENETUNREACH


def note(tried: list[str], event: str, given: tuple[Any, ...]) -> None:
    if event == "socket.getaddrinfo":
        tried.append(f"name {given[0]}")
    elif event == "socket.connect" and isinstance(given[1], tuple) and not str(given[1][0]).startswith("127."):
        tried.append(f"address {given[1][0]}")


async def turn(directory: Path, *, local_only: bool) -> dict[str, Any]:
    directory.mkdir()
    (directory / "script.json").write_text(json.dumps([{"calls": CALLS}, {"text": "Done."}]))
    (directory / "mcp.json").write_text(json.dumps(MCP))
    settings = Settings(
        engine="scripted",
        script=str(directory / "script.json"),
        data_dir=directory / "data",
        cache_dir=directory / "cache",
        local_only=local_only,
        tools="agent",
        web="duckduckgo",
        mcp_config=str(directory / "mcp.json"),
        dispatch_url="https://tools.example.org/run",
        policy={"web": "auto", "dispatch": "auto", "mcp": "auto"},
    )
    runtime = Runtime.build(settings)
    request = TurnRequest("go", web={}, functions=(REMOTE,))
    told: dict[str, Any] = {"calls": {}, "notices": [], "engine": refusal_of_engine(runtime)}
    async with aclosing(runtime.agent(SessionKey("local", "s"), request).stream(request)) as events:
        async for event in events:
            if isinstance(event.body, CallFinished):
                told["calls"][event.body.name] = [event.body.status, event.body.text]
            elif isinstance(event.body, Notice):
                told["notices"].append(event.body.text)
            elif isinstance(event.body, TurnFinished):
                told["state"] = event.body.state
    await runtime.aclose()
    return told


def refusal_of_engine(runtime: Runtime) -> str:
    """Return the error for an engine with a URL. No request is sent, because creating the engine connects to
    nothing.
    """
    try:
        runtime.engines.get("https://models.example.org/v1#big")
    except AgentKernelError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))

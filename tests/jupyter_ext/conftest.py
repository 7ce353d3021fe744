from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.page import Page, page
from tests.server import TOKEN, AgentServer

ServerFactory = Callable[..., Awaitable[AgentServer]]


@pytest.fixture
async def agent_server(tmp_path: Path) -> AsyncIterator[ServerFactory]:
    """A function ``await agent_server(script, name=..., **fields of AgentServer)``; its servers end with everything
    they started.
    """
    servers: list[AgentServer] = []

    async def start(script: list[dict[str, Any]] | None = None, name: str = "server", **fields: Any) -> AgentServer:
        server = AgentServer(tmp_path / name, script or [{"text": "Hello.", "loop": True}], **fields)
        server.directory.mkdir()
        servers.append(server)
        return await server.start()

    yield start
    for server in servers:
        server.sweep()


HANG = {"text": "It begins", "fault": "hang", "when": "hang", "loop": True}
SLOW = {"text": "word " * 40, "deltas": 40, "delay": 0.05, "when": "slow", "loop": True}
FAST = {"text": "x" * 600, "deltas": 600, "delay": 0.001, "when": "fast", "loop": True}
CODE = {"name": "python", "arguments": {"code": "1 + 1"}}
LIVE = {"text": "", "calls": [CODE], "when": "live"}
HELLO = {"text": "Hello.", "loop": True}


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServer]:
    """One server for the tests of a module that do not stop it, with the module's SCRIPT, TRAITS, ENV and EXTENSIONS.
    Without a SCRIPT, prompts that contain ``hang``, ``slow``, ``fast`` or ``live`` (once) get those answers, others
    ``Hello.``
    """
    script = getattr(request.module, "SCRIPT", [HANG, SLOW, FAST, LIVE, HELLO])
    named = {name.lower(): getattr(request.module, name, None) for name in ("TRAITS", "ENV", "EXTENSIONS")}
    options: dict[str, Any] = {name: value for name, value in named.items() if value}
    with AgentServer(tmp_path_factory.mktemp("server"), script, **options) as server:
        yield asyncio.run(server.start())


@pytest.fixture
async def api(server: AgentServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the server for paths like ``agent/v1/turns``."""
    async with server.client() as client:
        yield client


@pytest.fixture
async def mine(server: AgentServer) -> AsyncIterator[Page]:
    """A page of the user that is connected to the server."""
    async with page(server) as connected:
        yield connected


@pytest.fixture(scope="module")
def client(server: AgentServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.agent_url, api_key=TOKEN, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def http(server: AgentServer) -> Iterator[httpx.Client]:
    """A plain HTTP client, for requests that OpenAI's client cannot express."""
    with server.blocking_client({"Authorization": f"Bearer {TOKEN}"}) as client:
        yield client

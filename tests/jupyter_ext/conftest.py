from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server import AgentServer

ServerFactory = Callable[..., Awaitable[AgentServer]]


@pytest.fixture
async def agent_server(tmp_path: Path) -> AsyncIterator[ServerFactory]:
    """``await agent_server(script, name=..., **fields of AgentServer)``; ended with everything it started."""
    servers: list[AgentServer] = []

    async def start(script: list[dict[str, Any]] | None = None, name: str = "server", **fields: Any) -> AgentServer:
        server = AgentServer(tmp_path / name, script or [{"text": "Hello.", "loop": True}], **fields)
        server.directory.mkdir()
        servers.append(server)
        return await server.start()

    yield start
    for server in servers:
        server.sweep()

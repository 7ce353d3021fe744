from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from agent_kernel.client import http as module
from agent_kernel.client.discovery import ServerAddress
from agent_kernel.client.http import ServerConnection
from tests.client.failing import Failing
from tests.jupyter_ext.conftest import server

__all__ = ["server"]
Serve = Callable[..., Any]


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    monkeypatch.setattr(module, "PAUSES_S", (0.001,) * 4)
    opened: list[Any] = []

    async def start(*answers: bytes) -> tuple[ServerConnection, Failing]:
        failing = Failing(*answers)
        server = await asyncio.start_server(failing, "127.0.0.1", 0)
        connection = ServerConnection(ServerAddress.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", "t"))
        opened.extend([connection, server])
        return connection, failing

    yield start
    for one in opened:
        if isinstance(one, ServerConnection):
            await one.aclose()
        else:
            one.close()

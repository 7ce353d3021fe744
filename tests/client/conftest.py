from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from agent_kernel.client import http as module
from agent_kernel.client.discovery import ServerAddress
from agent_kernel.client.http import ServerConnection
from tests.client.failing import Failing
from tests.jupyter_ext.conftest import server
from tests.tcp_server import tcp_server

__all__ = ["server"]
Serve = Callable[..., Any]


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    monkeypatch.setattr(module, "PAUSES_S", (0.001,) * 4)
    async with contextlib.AsyncExitStack() as opened:

        async def start(*answers: bytes) -> tuple[ServerConnection, Failing]:
            failing = Failing(*answers)
            port = await opened.enter_async_context(tcp_server(failing))
            connection = ServerConnection(ServerAddress.of(f"http://127.0.0.1:{port}/", "t"))
            opened.push_async_callback(connection.aclose)
            return connection, failing

        yield start

"""Tests how long the WebSocket of a page of ``agent-kernel serve`` stays open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.served import Served

INTERVAL_MS = 500
PING = b"\x89\x00"
"""The frame of a ping without data."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server that sends a ping every half second. Jupyter's interval is 30 s."""
    config = tmp_path / "served" / "config"
    config.mkdir(parents=True)
    pings = {"ws_ping_interval": INTERVAL_MS, "ws_ping_timeout": INTERVAL_MS}
    (config / "jupyter_server_config.json").write_text(json.dumps({"ServerApp": {"tornado_settings": pings}}))
    with Served(tmp_path / "served", [{"text": "Hello.", "loop": True}]) as one:
        yield one.start()


@asynccontextmanager
async def connect(served: Served) -> AsyncIterator[WebSocketClientConnection]:
    """Connect as a browser does, which answers pings by itself."""
    url = f"{served.url.rstrip('/')}/agent/v1/socket".replace("http", "ws", 1)
    socket = await websocket_connect(HTTPRequest(url, headers={"Authorization": f"token {served.token}"}))
    try:
        yield socket
    finally:
        socket.close()
        while await socket.read_message() is not None:
            pass


async def test_a_page_that_answers_pings_stays_connected(served: Served) -> None:
    async with connect(served) as socket:
        await asyncio.sleep(6 * INTERVAL_MS / 1000)
        assert socket.protocol is not None
        assert not socket.protocol.is_closing()
    assert "ping" not in served.log.read_text(), "the log has no warning about pings"


async def test_a_page_that_answers_no_ping_is_disconnected(served: Served) -> None:
    address = urlsplit(served.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    lines = [
        "GET /agent/v1/socket HTTP/1.1",
        f"Host: {address.netloc}",
        f"Authorization: token {served.token}",
        *("Connection: Upgrade", "Upgrade: websocket"),
        *("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    async with asyncio.timeout(20):
        frames = await reader.read()
    assert frames[:2] == PING
    writer.close()
    await writer.wait_closed()

"""A page connected to ``agent/v1/socket``, driven by a test."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.server import TOKEN, AgentServer, Json

WITHIN_S = 60.0


@dataclass
class Page:
    """A connected page. ``said`` are all messages that it has received."""

    socket: WebSocketClientConnection
    said: list[Json] = field(default_factory=list)
    gone: bool = False

    async def ask(self, do: str, **what: Any) -> None:
        await self.socket.write_message(json.dumps({"do": do, **what}))

    async def hear(self) -> Json | None:
        """Return the next message; None when the connection has been closed."""
        text = await asyncio.wait_for(self.socket.read_message(), WITHIN_S)
        if text is None:
            self.gone = True
            return None
        message: Json = json.loads(text)
        self.said.append(message)
        return message

    async def until(self, type: str, **wanted: Any) -> Json:
        """Return the next message of that type whose fields have these values."""
        while (message := await self.hear()) is not None:
            if message["type"] == type and all(message.get(name) == value for name, value in wanted.items()):
                return message
        raise AssertionError(f"closed ({self.socket.close_code}) before {type} {wanted}; heard {self.said[-3:]}")

    async def turn(self, turn: str) -> list[Json]:
        """Wait for the last event of a turn. Return all its events."""
        await self.until("turn.finished", turn=turn)
        return self.events(turn)

    def events(self, turn: str) -> list[Json]:
        """Return the events of a turn that have arrived so far."""
        return [message for message in self.said if "seq" in message and message["turn"] == turn]

    async def closed(self) -> int | None:
        """Wait until the server closes the connection. Return its close code."""
        while await self.hear() is not None:
            pass
        return self.socket.close_code

    async def leave(self) -> None:
        """Close the connection and wait until the server has noticed."""
        self.socket.close()
        if not self.gone:
            await self.closed()


async def connect(server: AgentServer, headers: Mapping[str, str] | None = None, *, query: str = "") -> Page:
    """Connect a page. Raises HTTPClientError if the server refuses."""
    url = f"{server.agent_url}socket{query}".replace("http", "ws", 1)
    login = {"Authorization": f"token {TOKEN}"} if headers is None else dict(headers)
    return Page(await websocket_connect(HTTPRequest(url, headers=login, connect_timeout=WITHIN_S)))


@asynccontextmanager
async def page(server: AgentServer, headers: Mapping[str, str] | None = None) -> AsyncIterator[Page]:
    connected = await connect(server, headers)
    try:
        yield connected
    finally:
        await connected.leave()


class RawPage:
    """A connection that reads only when a test reads, and sends arbitrary bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, server: AgentServer) -> RawPage:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=4096)
        lines = [
            "GET /agent/v1/socket HTTP/1.1",
            f"Host: 127.0.0.1:{server.port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
            "Sec-WebSocket-Version: 13",
            f"Authorization: token {TOKEN}",
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in answer, answer
        return cls(reader, writer)

    def send(self, payload: bytes, opcode: int = 1) -> None:
        """Send one frame with a mask of zeros, without waiting for buffer space."""
        size = len(payload)
        length = (
            bytes([0x80 | size])
            if size < 126
            else b"\xfe" + struct.pack("!H", size)
            if size < 1 << 16
            else b"\xff" + struct.pack("!Q", size)
        )
        self.writer.write(bytes([0x80 | opcode]) + length + bytes(4) + payload)

    def ask(self, do: str, **what: Any) -> None:
        self.send(json.dumps({"do": do, **what}).encode())

    async def frame(self) -> tuple[int, bytes]:
        """Return (opcode, payload) of the next frame. Raises IncompleteReadError when the connection has ended."""
        first, size = await self.reader.readexactly(2)
        if size == 126:
            [size] = struct.unpack("!H", await self.reader.readexactly(2))
        elif size == 127:
            [size] = struct.unpack("!Q", await self.reader.readexactly(8))
        return first & 0xF, await self.reader.readexactly(size)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

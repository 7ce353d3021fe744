"""Tests bodies that are far too long: they are refused before they arrive, also by the routes for uploads."""

from __future__ import annotations

import asyncio

import pytest

from jupyter_ext.api.http.body_buffer import DROPPED
from jupyter_ext.api.http.handler import AgentHandler
from tests.jupyter_ext.conftest import ServerFactory
from tests.server import TOKEN, AgentServer

UPLOADS = ["agent/v1/files", "agent/v1/skills", "agent/v1/sessions/import", "agent/v1/mcp"]


async def first_line(server: AgentServer, path: str, *headers: str, login: str = TOKEN, body: bytes = b"") -> str:
    """Return the first line of the response to a POST request whose body does not arrive, or only its beginning."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    lines = [f"POST /{path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: token {login}", *headers, "", ""]
    writer.write("\r\n".join(lines).encode() + body)
    try:
        async with asyncio.timeout(10):
            line = (await reader.readline()).decode()
            await reader.read()  # the server closes the connection
            return line
    finally:
        writer.close()


@pytest.mark.parametrize("length", [10**14, 10**30])
@pytest.mark.parametrize("path", [*UPLOADS, "agent/v1/turns", "agent/v1/chat/completions"])
@pytest.mark.parametrize("login", [TOKEN, "wrong"])
async def test_a_body_that_is_far_too_long_by_its_header_is_refused_before_it_arrives(
    server: AgentServer, path: str, length: int, login: str
) -> None:
    headers = (f"Content-Length: {length}", "Content-Type: multipart/form-data; boundary=b")
    assert " 413 " in await first_line(server, path, *headers, login=login)


async def test_an_upload_without_a_length_is_refused_when_it_is_far_too_long(agent_server: ServerFactory) -> None:
    server = await agent_server(traits={"upload_mb": 1})
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = ["POST /agent/v1/files HTTP/1.1", "Host: 127.0.0.1", f"Authorization: token {TOKEN}"]
    head += ["Transfer-Encoding: chunked", "Content-Type: multipart/form-data; boundary=b", "", ""]
    writer.write("\r\n".join(head).encode())
    answer = asyncio.create_task(reader.readline())

    async def send(piece: bytes) -> None:
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await writer.drain()

    try:
        async with asyncio.timeout(60):
            await send(b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n')
            for _ in range((DROPPED + AgentHandler.max_body) >> 20):
                await send(bytes(1 << 20))
            # A server that closes while bytes are on their way resets the connection, and the answer may be lost. So
            # the last bytes are sent in pieces that it reads at once.
            while not (await asyncio.wait({answer}, timeout=0.005))[0]:
                await send(bytes(4 << 10))
            assert b" 413 " in await answer
    finally:
        writer.close()

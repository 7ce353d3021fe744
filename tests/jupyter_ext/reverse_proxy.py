"""A reverse proxy, as it is common in front of public servers: ``python -m ...reverse_proxy PORT BEHIND [BEHIND ...]``.

The servers behind it take turns; those that refuse the connection are skipped. One request per connection; upgrades are
passed on, and responses are not buffered. It adds X-Forwarded-For, -Proto, -Host and X-Real-IP, and discards those that
a client sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import sys
from collections.abc import Sequence

FORWARDED = re.compile(rb"(?i)^(?:x-forwarded-\w+|x-real-ip|forwarded):")
CONNECTION = re.compile(rb"(?i)^connection:")
UPGRADE = re.compile(rb"(?im)^upgrade: *websocket\r?$")
PIECE = 1 << 16


def forwarded_head(head: bytes, address: str) -> bytes:
    """Return the head of a request as the proxy passes it to the server behind it."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    host = next((line.split(b":", 1)[1].strip() for line in lines if line.lower().startswith(b"host:")), b"")
    kept = [line for line in lines if not FORWARDED.match(line)]
    if not UPGRADE.search(head):
        kept = [*(line for line in kept if not CONNECTION.match(line)), b"Connection: close"]
    client = address.encode()
    added = [b"X-Forwarded-For: " + client, b"X-Real-IP: " + client, b"X-Forwarded-Proto: http"]
    return b"\r\n".join([first, *kept, *added, b"X-Forwarded-Host: " + host]) + b"\r\n\r\n"


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


async def connect(behind: Sequence[int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first of these ports that accepts. Raises OSError."""
    for port in behind[:-1]:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection("127.0.0.1", port)
    return await asyncio.open_connection("127.0.0.1", behind[-1])


async def serve(port: int, behind: Sequence[int]) -> None:
    numbers = itertools.count()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            first = next(numbers) % len(behind)
            inner_reader, inner_writer = await connect([*behind[first:], *behind[:first]])
            inner_writer.write(forwarded_head(head, writer.get_extra_info("peername")[0]))
            await asyncio.gather(pass_on(reader, inner_writer), pass_on(inner_reader, writer))

    async with await asyncio.start_server(connected, "127.0.0.1", port, limit=1 << 20) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), [int(port) for port in sys.argv[2:]]))

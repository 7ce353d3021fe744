"""A TCP server on the loopback interface that closes all its connections when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import Any, TypeAlias

Handler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def tcp_server(handler: Handler, host: str = "127.0.0.1", port: int = 0, **options: Any) -> AsyncIterator[int]:
    """Run ``handler`` for each connection and yield the port. ``options`` are those of `asyncio.start_server`.

    A connection is closed when its handler ends, for whatever reason. When the server stops, it cancels the handlers
    and aborts the connections. A connection that stays open would cause a warning at the next garbage collection, which
    may run in an unrelated test.
    """
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            await handler(reader, writer)

    # Not a coroutine function: a task that is cancelled before its first step would never have registered itself.
    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not server.is_serving():
            writer.transport.abort()
            return
        connections[asyncio.create_task(handle(reader, writer))] = writer

    address: dict[str, Any] = {} if "sock" in options else {"host": host, "port": port}
    # A client that waits for the port connects as soon as it is served, and ``connected`` needs ``server`` then.
    server = await asyncio.start_server(connected, start_serving=False, **address, **options)
    await server.start_serving()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        for writer in connections.values():
            if not writer.transport.is_closing():  # Python 3.11.2 fails to abort a TLS connection that is closed
                writer.transport.abort()
        # A transport closes its socket in the next pass of the event loop.
        await asyncio.sleep(0)

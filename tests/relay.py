"""A TCP relay to a server that a test can cut, as a suspended laptop or a restarted proxy does."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from tests.tcp_server import tcp_server


class Relay:
    """Listens on ``port`` and forwards everything to ``to_port``."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = contextlib.AsyncExitStack()
        self.port = 0
        self.connections = 0

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Listen; after `close`, on the same port as before."""
        self.port = await self._server.enter_async_context(tcp_server(self._relay, port=self.port))

    async def close(self) -> None:
        """Cut every connection and stop listening."""
        self.cut()
        await self._server.aclose()

    def cut(self) -> None:
        """Cut every connection at once, in the middle of its data."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        self._writers |= {writer, far_writer}
        try:
            if await self._passes_on(reader, far_reader, far_writer):
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            far_writer.transport.abort()

    async def _passes_on(
        self, reader: asyncio.StreamReader, far_reader: asyncio.StreamReader, far_writer: asyncio.StreamWriter
    ) -> bool:
        """Return True if a new connection is relayed. A subclass may return False, which closes it."""
        return True


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    with contextlib.suppress(OSError):
        sink.close()
        await sink.wait_closed()

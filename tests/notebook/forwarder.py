"""A way to a server that can be cut: what a kernel sees of a sleeping laptop, a restarted proxy, a lost network."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType


class Forwarder:
    """Listens on ``port`` and passes everything on."""

    def __init__(self, to_port: int) -> None:
        self._to = to_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.connections = 0

    async def __aenter__(self) -> Forwarder:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def cut(self) -> None:
        """Every connection at once, in the middle of whatever it says."""
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        """Nobody answers any more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers |= {writer, back}
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(_pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    with contextlib.suppress(OSError):
        sink.close()
        await sink.wait_closed()

"""The slot for models of this machine: only one is in memory at a time. The next one waits until the current one is
idle, and replaces it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing

from agent_kernel.core.protocols import Chunk, Engine, EngineInfo, EngineRequest, WaitChunk


class ModelSlot:
    """First come, first served. Once a request for another model waits, later requests for the current model wait
    behind it, so that no request waits forever."""

    def __init__(self) -> None:
        self._line: deque[object] = deque()
        self._sitting: Engine | None = None
        self._requests = 0
        self._changed = asyncio.Event()

    async def wait(self, engine: Engine) -> AsyncGenerator[WaitChunk, None]:
        """Yield what is being waited for, until ``engine`` has the slot and its request is counted. ``leave`` ends the
        request."""
        ticket = object()
        self._line.append(ticket)
        try:
            while not self._free(ticket, engine):
                changed = self._changed
                yield WaitChunk("waiting for the model before", None, self._line.index(ticket) + 1)
                await changed.wait()
            if self._sitting is not engine:
                if self._sitting is not None:
                    yield WaitChunk(f"unloading {self._sitting.info().model}")
                    await self._sitting.aclose()
                self._sitting = engine
            self._requests += 1
        finally:
            self._line.remove(ticket)
            self._tell()

    def leave(self) -> None:
        self._requests -= 1
        self._tell()

    def _free(self, ticket: object, engine: Engine) -> bool:
        return self._line[0] is ticket and (self._sitting in (None, engine) or not self._requests)

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class SlottedEngine:
    """An engine whose model is loaded only while it has the slot."""

    def __init__(self, engine: Engine, seat: ModelSlot) -> None:
        self.engine = engine
        self._seat = seat

    def info(self) -> EngineInfo:
        return self.engine.info()

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        async with aclosing(self._seat.wait(self.engine)) as waits:
            async for wait in waits:
                yield wait
        try:
            async with aclosing(self.engine.stream(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self._seat.leave()

    async def aclose(self) -> None:
        await self.engine.aclose()

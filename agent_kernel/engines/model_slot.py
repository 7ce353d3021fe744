"""The slot for models of this machine: only one model is in memory at a time. The next model waits until the current
one is idle, and replaces it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing

from agent_kernel.core.protocols import Chunk, Engine, EngineInfo, EngineRequest, WaitChunk


class ModelSlot:
    """Assigns the slot to engines in the order of their requests. Once a request for another model waits, later
    requests for the current model wait behind it, so that no request waits forever."""

    def __init__(self) -> None:
        self._queue: deque[object] = deque()
        self._current: Engine | None = None
        self._requests = 0
        self._changed = asyncio.Event()

    async def wait(self, engine: Engine) -> AsyncGenerator[WaitChunk, None]:
        """Yield what the request waits for, until ``engine`` has the slot. The request then counts as running until
        ``leave`` is called."""
        ticket = object()
        self._queue.append(ticket)
        try:
            while not self._is_free(ticket, engine):
                changed = self._changed
                yield WaitChunk("waiting for the model before", None, self._queue.index(ticket) + 1)
                await changed.wait()
            if self._current is not engine:
                if self._current is not None:
                    yield WaitChunk(f"unloading {self._current.info().model}")
                    await self._current.aclose()
                self._current = engine
            self._requests += 1
        finally:
            self._queue.remove(ticket)
            self._notify()

    def leave(self) -> None:
        self._requests -= 1
        self._notify()

    def _is_free(self, ticket: object, engine: Engine) -> bool:
        return self._queue[0] is ticket and (self._current in (None, engine) or not self._requests)

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class SlottedEngine:
    """An engine whose model is loaded only while it has the slot."""

    def __init__(self, engine: Engine, slot: ModelSlot) -> None:
        self.engine = engine
        self._slot = slot

    def info(self) -> EngineInfo:
        return self.engine.info()

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        async with aclosing(self._slot.wait(self.engine)) as waits:
            async for wait in waits:
                yield wait
        try:
            async with aclosing(self.engine.stream(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self._slot.leave()

    async def aclose(self) -> None:
        await self.engine.aclose()

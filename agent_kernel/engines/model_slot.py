"""A model of this machine: it shares a queue with the others, because only one of them is in memory at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from agent_kernel.core.protocols import Chunk, Engine, EngineInfo, EngineRequest
from agent_kernel.engines.fair_queue import FairQueue


class SlottedEngine:
    """An engine whose model is loaded only while ``queue`` lets its calls begin."""

    def __init__(self, engine: Engine, queue: FairQueue) -> None:
        self.engine = engine
        self.queue = queue

    def info(self) -> EngineInfo:
        return self.engine.info()

    def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        """Stream one model call. Sessions take turns here; a server lets its users take turns, see ``queue``."""
        return self.queue.stream(self.engine, request, request.session, next(self.queue.numbers))

    async def aclose(self) -> None:
        await self.engine.aclose()


def unwrap(engine: Engine) -> Engine:
    """Return the engine itself, without its queue."""
    return engine.engine if isinstance(engine, SlottedEngine) else engine

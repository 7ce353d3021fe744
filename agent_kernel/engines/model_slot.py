"""Wraps the engine of a model of this machine. All these engines share one queue, because only one of the models is in
memory at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from agent_kernel.core.protocols import Chunk, Engine, EngineInfo, EngineRequest
from agent_kernel.engines.fair_queue import FairQueue


class SlottedEngine:
    """An engine whose calls begin only when ``queue`` allows it, so that its model is loaded only then."""

    def __init__(self, engine: Engine, queue: FairQueue) -> None:
        self.engine = engine
        self.queue = queue

    def info(self) -> EngineInfo:
        return self.engine.info()

    def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        """Stream one model call when the shared queue allows it. The queue divides the model fairly among users; this
        method names the session as the user. A server does not call it, but uses ``queue`` with its real users."""
        return self.queue.stream(self.engine, request, request.session, next(self.queue.numbers))

    async def aclose(self) -> None:
        await self.engine.aclose()


def unwrap(engine: Engine) -> Engine:
    """Return the engine inside a SlottedEngine, which does not wait in the queue; return any other engine unchanged."""
    return engine.engine if isinstance(engine, SlottedEngine) else engine

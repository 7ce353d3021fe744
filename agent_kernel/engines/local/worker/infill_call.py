"""Runs the server's side of inline completion. Only one call runs at a time; the next turn, or a newer call, ends
it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from contextlib import aclosing

from agent_kernel.core.errors import from_json
from agent_kernel.engines.local.infill import Filling, Gap
from agent_kernel.engines.local.worker.worker_process import WorkerProcess


class InfillCall:
    """The current call of inline completion, if there is one."""

    def __init__(self) -> None:
        self._reader: asyncio.Task[None] | None = None

    async def stream(self, worker: WorkerProcess, gap: Gap) -> AsyncGenerator[Filling, None]:
        """Yield the worker's completion as it grows. If ``stop`` ends the call, the last value has the reason
        ``busy``.
        """
        self.stop()
        fillings: asyncio.Queue[Filling | None] = asyncio.Queue()
        reader = self._reader = asyncio.create_task(_read(worker, gap, fillings), name="inline completion")
        reader.add_done_callback(lambda _: fillings.put_nowait(None))
        try:
            while (filling := await fillings.get()) is not None:
                yield filling
            if reader.cancelled():
                yield Filling(silence="busy")
        finally:
            reader.cancel()
            # The task is awaited here, so that asyncio does not log an exception that nobody retrieved.
            await asyncio.wait([reader])
            failure = None if reader.cancelled() else reader.exception()
        if failure is not None:
            raise failure

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.cancel()


async def _read(worker: WorkerProcess, gap: Gap, fillings: asyncio.Queue[Filling | None]) -> None:
    frame = {"type": "infill", "gap": dataclasses.asdict(gap)}
    async with aclosing(worker.frames(frame)) as frames:
        async for body in frames:
            if "error" in body:
                raise from_json(body["error"])
            if "end" in body:
                return
            fillings.put_nowait(Filling(body["infill"], body["silence"]))

"""The models of this server give way while a kernel computes for its person, and only then."""

from __future__ import annotations

import asyncio

from agent_kernel.engines.local.worker.engine import LocalEngine
from agent_kernel.engines.registry import NamedEngines
from jupyter_ext.notebooks.kernels import Kernels
from jupyter_ext.turns.turns import Turns

LOOK_S = 1.0


class Neighbours:
    """Looks every LOOK_S seconds: Jupyter tells no extension when a kernel begins to compute."""

    def __init__(self, kernels: Kernels, turns: Turns, engines: NamedEngines) -> None:
        self._kernels = kernels
        self._turns = turns
        self._engines = engines
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_looking(), name="kernels that compute")

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def look(self) -> bool:
        """Whether a kernel is busy with something else than waiting, in a cell, for a turn of ours; the engines are
        told."""
        waiting = {turn.order.by for turn in self._turns.running}
        computing = bool(self._kernels.busy() - waiting)
        for engine in self._engines.local_engines:
            if isinstance(engine, LocalEngine):
                engine.give_way(computing)
        return computing

    async def _keep_looking(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

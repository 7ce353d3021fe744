"""Lowers the CPU priority of local model workers while a user's kernel is executing code."""

from __future__ import annotations

import asyncio

from agent_kernel.core.shielded_await import cancel_tasks
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from agent_kernel.engines.registry import NamedEngines
from jupyter_ext.notebooks.kernels import Kernels
from jupyter_ext.turns.turns import Turns

LOOK_S = 1.0


class ModelWorkerPriority:
    """Lowers the CPU priority of the local model workers while a kernel executes code.

    It polls the kernels every LOOK_S seconds, because Jupyter does not notify extensions when a kernel starts to
    execute.
    """

    def __init__(self, kernels: Kernels, turns: Turns, engines: NamedEngines) -> None:
        self._kernels = kernels
        self._turns = turns
        self._engines = engines
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_updating(), name="kernels that compute")

    async def aclose(self) -> None:
        await cancel_tasks(self._task)

    def update(self) -> bool:
        """Set the priority of the local model workers once. Return whether a kernel is computing. A kernel whose cell
        only waits for a turn of this server does not count."""
        waiting = {turn.spec.started_by for turn in self._turns.running}
        computing = bool(self._kernels.busy_ids() - waiting)
        for engine in self._engines.local_engines:
            if isinstance(engine, LocalEngine):
                engine.give_way(computing)
        return computing

    async def _keep_updating(self) -> None:
        while True:
            self.update()
            await asyncio.sleep(LOOK_S)

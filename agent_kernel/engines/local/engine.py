"""Models on this machine, in a worker process of their own; the server never imports what runs them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from agent_kernel.engines.local import catalog
from agent_kernel.engines.local.backend import LoadOptions
from agent_kernel.engines.local.frames import chunk_from_json, request_to_json
from agent_kernel.engines.local.model import LocalModel
from agent_kernel.engines.local.worker_process import SILENT_S, WorkerProcess
from agent_kernel.errors import AgentKernelError, EngineCrashed
from agent_kernel.protocols import Chunk, EndChunk, EngineInfo, EngineRequest, WaitChunk


class LocalEngine:
    """``model`` is a catalog name or the path of a GGUF file; it is looked up, and the worker started, at the first
    request, and again at the first one after a failure. ``python`` is an interpreter that has the model libraries, or
    tells one each time a worker is started.

    Raises from ``stream``: UnknownModel, ModelMissing, ModelBroken, ContextOverflow, EngineCrashed (the worker ended or
    hung ``silent_s`` seconds; every request that ran gets it, the next request starts a new worker).
    """

    def __init__(
        self,
        model: str,
        cache_dir: Path,
        *,
        options: LoadOptions | None = None,
        python: str | Callable[[], str] = sys.executable,
        silent_s: float = SILENT_S,
    ) -> None:
        self._name = model
        self._cache_dir = cache_dir
        self._options = options or LoadOptions()
        self._python = python
        self._silent_s = silent_s
        self._worker: WorkerProcess | None = None
        self._loading: asyncio.Task[None] | None = None
        self._stage: tuple[str, float | None] = ("", None)
        self._staged = asyncio.Event()
        self._state = "unloaded"
        self._model: LocalModel | None = None
        self._details: dict[str, Any] = {}
        self._context_length = 0
        self._sees = False

    def info(self) -> EngineInfo:
        """``context_length`` is known before the model is loaded if the model is on this machine."""
        if self._worker is not None and not self._worker.alive:
            self._state = "unloaded"
        if self._model is None:
            self._model = self._installed()
        length = self._context_length or (self._model.context_length if self._model else 0)
        return EngineInfo(self._name, True, length, self._sees, self._state, self._details)

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        async with aclosing(self._until_ready()) as waits:
            async for wait in waits:
                yield wait
        worker = self._worker
        assert worker is not None
        frame = {"type": "stream", "request": request_to_json(request)}
        async with aclosing(worker.frames(frame)) as frames:
            async for body in frames:
                chunk = chunk_from_json(body)
                yield chunk
                if isinstance(chunk, EndChunk):
                    return

    async def stats(self) -> Mapping[str, float]:
        """``running`` requests in the batch, and what the backend tells of its cache (``cache_used`` 0..1)."""
        if self._worker is None or not self._worker.alive:
            return {"running": 0}
        return {name: value for name, value in (await self._worker.stats()).items() if name not in ("type", "pid")}

    @property
    def worker_pid(self) -> int | None:
        return self._worker.pid if self._worker is not None and self._worker.alive else None

    async def aclose(self) -> None:
        """Ends the worker. The engine can be used again afterwards: it starts another one."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
            self._loading = None
        await self._drop()

    async def _until_ready(self) -> AsyncGenerator[WaitChunk, None]:
        """How far loading is, until the worker can be asked. One load serves all who wait; a waiter that leaves does
        not stop it."""
        if self._worker is not None and self._worker.alive and self._loading is None:
            return
        if self._loading is None:
            self._loading = asyncio.create_task(self._load(), name="model load")
            self._loading.add_done_callback(self._load_ended)
        loading = self._loading
        while not loading.done():
            yield WaitChunk(*self._stage)
            self._staged.clear()
            staged = asyncio.ensure_future(self._staged.wait())
            try:
                await asyncio.wait([loading, staged], return_when=asyncio.FIRST_COMPLETED)
            finally:
                staged.cancel()
        if loading.cancelled():
            raise EngineCrashed("The engine was closed while the model was loading.")
        loading.result()

    async def _load(self) -> None:
        await self._drop()
        self._state = "loading"
        try:
            self._at("looking for the model", None)
            model = self._model = await asyncio.to_thread(catalog.resolve, self._name, self._cache_dir)
            self._at("starting", None)
            self._worker = await WorkerProcess.start(self._interpreter(), self._cache_dir, self._silent_s)
            ready = await self._worker.load(model, self._options, self._at)
        except BaseException:
            await self._drop()
            raise
        self._details = ready["details"] | {"revision": model.revision}
        self._context_length, self._sees = ready["context_length"], ready["sees"]
        self._state = "ready"

    def _interpreter(self) -> str:
        return self._python if isinstance(self._python, str) else self._python()

    def _load_ended(self, task: asyncio.Task[None]) -> None:
        self._loading = None
        # Read here too, so that a failure nobody waits for any more is not reported as lost.
        if task.cancelled() or task.exception() is not None:
            self._state = "failed"

    def _at(self, stage: str, fraction: float | None) -> None:
        self._stage = (stage, fraction)
        self._staged.set()

    def _installed(self) -> LocalModel | None:
        if catalog.is_path(self._name):
            return None
        try:
            return catalog.entry(self._name).installed_model(self._cache_dir)
        except AgentKernelError:
            return None  # ``stream`` says what is wrong with it

    async def _drop(self) -> None:
        worker, self._worker = self._worker, None
        self._state = "unloaded"
        if worker is not None:
            await worker.aclose()

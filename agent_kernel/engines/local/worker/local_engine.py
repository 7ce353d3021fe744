"""Implements the engine for models of this machine. The models run in a worker process, so that the server never
imports the libraries that run them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import AgentKernelError, EngineCrashed, OutOfMemory, refuse_fields
from agent_kernel.core.messages import Usage
from agent_kernel.core.protocols import THINKING, Chunk, EndChunk, EngineInfo, EngineRequest, WaitChunk
from agent_kernel.engines.local.backend import LoadOptions
from agent_kernel.engines.local.catalog import catalog
from agent_kernel.engines.local.catalog.catalog_entry import KINDS
from agent_kernel.engines.local.catalog.installed_model import LocalModel
from agent_kernel.engines.local.catalog.measured_speed import record_speed
from agent_kernel.engines.local.catalog.pull_stages import Progress
from agent_kernel.engines.local.infill import Filling, Gap, Silence
from agent_kernel.engines.local.system_memory import Memory, largest_processes, read_memory, resident_bytes
from agent_kernel.engines.local.worker.infill_call import InfillCall
from agent_kernel.engines.local.worker.memory_estimate import fit_options
from agent_kernel.engines.local.worker.messages import chunk_from_json, request_to_json
from agent_kernel.engines.local.worker.unload_policy import CHECK_S, IDLE_UNLOAD_S, UnloadPolicy
from agent_kernel.engines.local.worker.worker_process import SILENT_S, WorkerProcess

HINT = (
    "Models of this machine support logprobs for the chosen tokens only, reasoning_effort none, and the output formats "
    "json_object, json_schema, regex and choice."
)


class LocalEngine:
    """The engine of one model of this machine. ``model`` is a catalog name, a path or an id of a hub
    (``catalog.resolve``). At the first request, and at the first request after a failure or an unload, the engine looks
    up the model and starts the worker. ``python`` is an interpreter with the model libraries, or a function that
    returns one for each start of a worker. ``sources`` lists the kinds of sources that may be asked about a model that
    is not on this machine. ``protocol`` replaces the model's own tool protocol.

    The model is unloaded after ``idle_unload_s`` seconds without a request (0 = never). It is also unloaded when less
    than ``reserve_gb`` of memory (0 = a tenth, but at least 1 GiB) is left for the user's own programs. If requests are
    running then, they are still answered while new ones are refused; below a quarter of the reserve, all requests end.

    ``stream`` raises UnknownModel, ModelMissing, ModelBroken, ModelUnsupported, OutOfMemory, ContextOverflow and
    EngineCrashed. EngineCrashed means that the worker ended, or hung for ``silent_s`` seconds: every running request
    then raises it, and the next request starts a new worker.
    """

    def __init__(
        self,
        model: str,
        cache_dir: Path,
        *,
        options: LoadOptions | None = None,
        protocol: str = "",
        python: str | Callable[[], str] = sys.executable,
        silent_s: float = SILENT_S,
        idle_unload_s: float = IDLE_UNLOAD_S,
        reserve_gb: float = 0.0,
        sources: Sequence[str] = KINDS,
        memory: Callable[[], Memory | None] = read_memory,
    ) -> None:
        self._name = model
        self._cache_dir = cache_dir
        self._options = options or LoadOptions()
        self._protocol = protocol
        self._python = python
        self._silent_s = silent_s
        self._reserve_gb = reserve_gb
        self._sources = sources
        self._memory = memory
        self._watch = UnloadPolicy(idle_unload_s, reserve_gb, memory)
        self._watching: asyncio.Task[None] | None = None
        self._streams = 0
        self._infill = InfillCall()
        self._give_way = False
        self._unwatch = asyncio.Event()
        self._refusal: OutOfMemory | None = None
        self._left: OutOfMemory | None = None
        self._worker: WorkerProcess | None = None
        self._loading: asyncio.Task[None] | None = None
        self._stage: tuple[str, float | None] = ("", None)
        self._staged = asyncio.Event()
        self._state = "unloaded"
        self._model: LocalModel | None = None
        self._chosen = ""
        self._details: dict[str, Any] = {}
        self._context_length = 0
        self._sees = False

    def info(self) -> EngineInfo:
        """Return the state and the properties of the engine. If the model is on this machine, ``context_length`` is
        known before the model is loaded."""
        if self._worker is not None and not self._worker.alive:
            self._state = "unloaded"
        if self._model is None:
            self._model = self._find_installed()
        length = self._context_length or (self._model.context_length if self._model else 0)
        name, details = self._model_name(), self._details
        return EngineInfo(name, True, length, self._sees, self._state, details, batches=True, continues=True)

    def _model_name(self) -> str:
        """Return the name of the model. For the model ``default``, return the name of the catalog model for which it
        stands, because answers are stored under that name. Once that model is on this machine, the name is remembered,
        since finding it takes 50 ms."""
        if self._name != catalog.DEFAULT:
            return self._name
        if not self._chosen or self._model is None:
            self._chosen = catalog.entry_here(catalog.DEFAULT, self._cache_dir).name
        return self._chosen

    @property
    def tool_protocol(self) -> str:
        """The name of the tool protocol; empty while the model is not on this machine."""
        return self._protocol or (self._model.protocol if self._model else "")

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        if self._refusal is not None:
            raise self._refusal
        check(request)
        self._streams += 1
        self._infill.stop()
        try:
            async with aclosing(self._chunks(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self._streams -= 1
            self._watch.touch()

    async def infill(self, gap: Gap) -> AsyncGenerator[Filling, None]:
        """Complete code with the loaded model. A model call, or a newer completion, ends this completion."""
        if silence := self._infill_silence():
            yield Filling(silence=silence)
            return
        assert self._worker is not None
        try:
            async with aclosing(self._infill.stream(self._worker, gap)) as fillings:
                async for filling in fillings:
                    yield filling
        finally:
            self._watch.touch()

    def _infill_silence(self) -> Silence:
        if self._streams or self._loading is not None or self._refusal is not None:
            return "busy"
        if self._worker is None or not self._worker.alive:
            return "unloaded"
        # Other Qwen models have the tokens in their vocabulary but were not trained to fill in code.
        return "" if self._model is not None and "coder" in self._model.name.lower() else "unsupported"

    async def _chunks(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of an answer. If the worker crashes before a request has any output, the request is sent
        once more, to the next worker."""
        for tries_left in (1, 0):
            begun = False
            async with aclosing(self._await_ready()) as waits:
                async for wait in waits:
                    yield wait
            worker = self._worker
            assert worker is not None
            try:
                async with aclosing(self._answer(worker, request)) as chunks:
                    async for chunk in chunks:
                        begun |= not isinstance(chunk, WaitChunk)
                        yield chunk
                return
            except EngineCrashed:
                if begun or not tries_left or not worker.crashed:
                    raise

    async def _answer(self, worker: WorkerProcess, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        frame = {"type": "stream", "request": request_to_json(request, sees=self._sees)}
        async with aclosing(worker.frames(frame)) as frames:
            async for body in frames:
                chunk = chunk_from_json(body)
                if isinstance(chunk, EndChunk):
                    await self._record_speed(chunk.usage)
                    yield chunk
                    return
                yield chunk

    async def _record_speed(self, usage: Usage) -> None:
        """Store the speed of an answer if no other request was running and the worker's CPU use was not reduced."""
        if self._model is not None and self._streams == 1 and not self._give_way:
            await asyncio.to_thread(record_speed, self._cache_dir, self._model.name, usage)

    async def stats(self) -> Mapping[str, float]:
        """Return the number of ``running`` requests in the batch, and the backend's figures about its cache
        (``cache_used`` from 0 to 1)."""
        if self._worker is None or not self._worker.alive:
            return {"running": 0}
        return {name: value for name, value in (await self._worker.stats()).items() if name not in ("type", "pid")}

    @property
    def worker_pid(self) -> int | None:
        return self._worker.pid if self._worker is not None and self._worker.alive else None

    def give_way(self, busy: bool) -> None:
        """Lower the worker's CPU use if ``busy``, otherwise restore it. The server calls this when the user's own code
        starts, and again when it has ended."""
        if busy != self._give_way:
            self._give_way = busy
            if self._worker is not None:
                self._worker.send({"type": "give_way", "busy": busy})

    async def unload(self, why: str = "unloaded on request") -> int:
        """End the worker and return the number of bytes that this frees. The next request starts another worker.
        ``why`` is the reason for display."""
        pid = self.worker_pid
        freed = resident_bytes(pid) if pid else 0
        self._details = {"unloaded": why}
        await self.aclose()
        return freed

    async def aclose(self) -> None:
        """End the worker. The engine can be used again afterwards, and then starts another worker."""
        if self._watching is not None and self._watching is not asyncio.current_task():
            self._unwatch.set()  # this task is not cancelled, because it may be ending the worker at this moment
            await asyncio.wait([self._watching])
        self._watching = None
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
            self._loading = None
        self._refusal = None
        await self._drop()

    async def _keep_watch(self) -> None:
        """Apply the unload policy every CHECK_S seconds while a worker runs."""
        while self._loading is not None or (self._worker is not None and self._worker.alive):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._unwatch.wait(), CHECK_S)
                return
            verdict = self._watch.verdict(busy=self._streams > 0 or self._loading is not None)
            match verdict.what:
                case "unload":
                    await self.unload(verdict.why)
                    return
                case "abort":
                    await self._abort(verdict.why)
                    return
                case what:
                    self._refusal = self._too_little(verdict.why) if what == "refuse" else None

    async def _abort(self, why: str) -> None:
        """End the worker. Running requests, and requests that wait for the model to load, raise OutOfMemory with the
        reason ``why``."""
        self._left = self._too_little(why)
        if self._worker is not None:
            self._worker.stop(self._left)
        await self.unload(why)

    def _too_little(self, why: str) -> OutOfMemory:
        return OutOfMemory(
            f"The model {self._name} was unloaded or refuses requests, so that your programs have memory: {why}.",
            hint="Free some memory and ask again, or choose a smaller model.",
        )

    async def _await_ready(self) -> AsyncGenerator[WaitChunk, None]:
        """Yield chunks with the progress of loading until the worker is ready. One load serves all waiting requests;
        cancelling a request does not stop the load."""
        if self._worker is not None and self._worker.alive and self._loading is None:
            return
        if self._loading is None:
            self._watch.touch()
            self._left = None
            self._loading = asyncio.create_task(self._load(), name="model load")
            self._loading.add_done_callback(self._on_load_end)
            if self._watching is None or self._watching.done():
                self._unwatch = asyncio.Event()
                self._watching = asyncio.create_task(self._keep_watch(), name="model unload policy")
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
            raise self._left or EngineCrashed("The engine was closed while the model was loading.")
        loading.result()
        yield WaitChunk(THINKING)

    async def _load(self) -> None:
        await self._drop()
        self._state = "loading"
        try:
            self._report_stage("looking for the model", None)
            model = self._model = await asyncio.to_thread(self._resolve, asyncio.get_running_loop())
            options = await asyncio.to_thread(self._fit_to_memory, model)
            self._report_stage("starting", None)
            self._worker = await WorkerProcess.start(self._interpreter(), self._cache_dir, self._silent_s)
            ready = await self._worker.load(model, self._protocol or model.protocol, options, self._report_stage)
            if self._give_way:
                self._worker.send({"type": "give_way", "busy": True})
        except BaseException:  # also if the load is cancelled: the worker must not continue without an owner
            await self._drop()
            raise
        self._details = ready["details"] | {"revision": model.revision}
        self._context_length, self._sees = ready["context_length"], ready["sees"]
        self._state = "ready"

    def _interpreter(self) -> str:
        return self._python if isinstance(self._python, str) else self._python()

    def _resolve(self, loop: asyncio.AbstractEventLoop) -> LocalModel:
        """Find the model on this machine; runs in a thread. A GGUF file that the library cannot read exactly is
        rewritten as Q8_0 first; the progress of this is reported in ``loop``."""

        def rewriting(progress: Progress) -> None:
            if progress.total and progress.stage in ("rewrite", "verify"):
                stage = "rewriting the model as Q8_0 (once)" if progress.stage == "rewrite" else "checking the file"
                loop.call_soon_threadsafe(self._report_stage, stage, progress.done / progress.total)

        backend = self._options.backend
        return catalog.resolve(self._name, self._cache_dir, rewriting, backend=backend, sources=self._sources)

    def _fit_to_memory(self, model: LocalModel) -> LoadOptions:
        """Return the load options with a cache that fits into the memory; runs in a thread. Raises OutOfMemory if the
        model does not fit."""
        memory = self._memory()
        if memory is None:
            return self._options
        reserve = memory.reserve(self._reserve_gb)
        return fit_options(
            model, self._options, self._cache_dir, memory=memory, reserve=reserve, holders=largest_processes
        )

    def _on_load_end(self, task: asyncio.Task[None]) -> None:
        self._loading = None
        # Retrieve the exception, so that asyncio does not log a failure that no request waits for any more.
        if task.cancelled() or task.exception() is not None:
            self._state = "failed"

    def _report_stage(self, stage: str, fraction: float | None) -> None:
        self._stage = (stage, fraction)
        self._staged.set()

    def _find_installed(self) -> LocalModel | None:
        if catalog.is_path(self._name):
            return None
        try:
            return catalog.find_installed(self._name, self._cache_dir, self._options.backend)
        except AgentKernelError:
            return None  # ``stream`` raises the error

    async def _drop(self) -> None:
        worker, self._worker = self._worker, None
        self._state = "unloaded"
        if worker is not None:
            await worker.aclose()


def check(request: EngineRequest) -> None:
    """Raise InvalidRequest if the request has options that no backend supports. This happens before a model is loaded
    for it."""
    sampling, output = request.sampling, request.output
    fields = {
        "top_logprobs": sampling.top_logprobs > 0,
        "reasoning_effort": sampling.reasoning_effort not in (None, "none"),
        "grammar": output is not None and output.kind == "grammar",
    }
    refuse_fields([name for name, is_set in fields.items() if is_set], "a model of this machine", HINT)

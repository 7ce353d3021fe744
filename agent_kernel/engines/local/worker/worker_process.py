"""The server's side of the model worker: starts the worker, exchanges frames with it, and notices when it dies or
hangs.

The module loads no model and imports no library that does.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from agent_kernel.core.errors import AgentKernelError, EngineCrashed, from_json
from agent_kernel.engines.local.backend import LoadOptions, ModelFile
from agent_kernel.engines.local.worker.pipe_framing import Frame, encode_frame, open_pipes, read_frames

BOOT = Path(__file__).with_name("bootstrap.py")
SILENT_S = 120.0
"""Seconds after which a worker counts as hung if it sends no beat, a frame that it sends regularly. While a step runs,
it may hold the worker's global interpreter lock, so that no beat is sent."""
LOADING_SILENT_S = 900.0
"""Seconds without a frame after which a worker that loads a model counts as hung. Building a large model's graph for
the first time takes minutes without any output."""
CHECK_S = 1.0
END_S = 2.0
LOG_TAIL = 2000
ALLOCATOR = "glibc.malloc.tcache_count=60000"
"""Setting of glibc for the worker: each thread keeps freed blocks of memory for itself. Preparing the graph of a model
allocates and frees millions of small blocks, and takes a sixth longer without it."""


class WorkerProcess:
    """The server's handle of one worker process, from the start of the process to its end."""

    def __init__(self, process: asyncio.subprocess.Process, log: IO[bytes], silent_s: float) -> None:
        self._process = process
        self._log = log
        self._silent_s = silent_s
        self._inboxes: dict[int, asyncio.Queue[Frame]] = {}
        self._next = 1
        self._silence = 0.0
        self._busy_s = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._loaded = False
        self._closing = False
        self._error: AgentKernelError | None = None
        self._stats: list[asyncio.Future[Frame]] = []
        self.running = 0
        self.crashed = False
        """Whether the worker ended without being closed."""

    @classmethod
    async def start(cls, python: str, cache_dir: Path, silent_s: float = SILENT_S) -> WorkerProcess:
        """Start the process with the interpreter ``python``. After ``silent_s`` seconds without a beat, the worker
        counts as hung. Raises EngineCrashed if the interpreter cannot be started."""
        to_worker, from_worker = os.pipe(), os.pipe()
        log = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the worker
        try:
            process = await asyncio.create_subprocess_exec(
                *(python, "-P", str(BOOT), "--read", str(to_worker[0]), "--write", str(from_worker[1])),
                *("--parent", str(os.getpid()), "--cache-dir", str(cache_dir)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(to_worker[0], from_worker[1]),
                env=_environ(python),
                start_new_session=True,  # Ctrl-C in the server's terminal must not reach the worker
            )
        except BaseException as error:  # also if the start is cancelled: nobody else closes the pipes
            log.close()
            for fd in (*to_worker, *from_worker):
                os.close(fd)
            if not isinstance(error, OSError):
                raise
            raise EngineCrashed(f"The model worker cannot be started with {python}: {error}.") from error
        os.close(to_worker[0])
        os.close(from_worker[1])
        worker = cls(process, log, silent_s)
        await worker._connect(from_worker[0], to_worker[1])
        return worker

    @property
    def alive(self) -> bool:
        return self._error is None and not self._closing

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, frame: Frame) -> None:
        """Send a frame. A frame to a dead worker is dropped without an error, because the requests that wait for an
        answer raise the error."""
        if self.alive:
            self._writer.write(encode_frame(frame))

    async def frames(self, frame: Frame) -> AsyncGenerator[Frame, None]:
        """Send a request and yield the frames that answer it. Closing the generator cancels the request. Raises
        EngineCrashed."""
        key, self._next = self._next, self._next + 1
        inbox = self._inboxes[key] = asyncio.Queue()
        try:
            self.send(frame | {"id": key})
            while True:
                yield await self._receive(inbox)
        finally:
            del self._inboxes[key]
            self.send({"type": "cancel", "id": key})

    async def load(
        self, model: ModelFile, protocol: str, options: LoadOptions, on_loading: Callable[[str, float | None], None]
    ) -> Frame:
        """Load a model and return the worker's ``ready`` frame. ``on_loading`` is called with each stage and its
        progress from 0 to 1, or None if unknown. Raises the error of the load, or EngineCrashed."""
        inbox = self._inboxes[0] = asyncio.Queue()
        self.send(
            {
                "type": "load",
                "path": str(model.path),
                "protocol": protocol,
                "context_length": model.context_length,
                "options": dataclasses.asdict(options),
            }
        )
        while True:
            frame = await self._receive(inbox)
            if frame["type"] == "ready":
                self._loaded = True
                return frame
            on_loading(frame["stage"], frame["fraction"])

    async def stats(self) -> Frame:
        """Return the figures that the worker reports, such as ``running`` (a number of requests) and ``pid``. Raises
        EngineCrashed."""
        self._raise_if_dead()
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._stats.append(answer)
        self.send({"type": "stats"})
        return await answer

    def stop(self, error: AgentKernelError) -> None:
        """End the worker at once. Everything that waits for the worker raises ``error``."""
        self._fail(error)
        self._kill()

    async def aclose(self) -> None:
        """End the worker by closing its pipe. If it has not ended after END_S seconds, kill it with SIGKILL."""
        self._closing = True
        self._writer.close()
        await self._wait_for_exit()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._reader_transport.close()
        self._log.close()

    async def _connect(self, read_fd: int, write_fd: int) -> None:
        reader, self._writer, self._reader_transport = await open_pipes(read_fd, write_fd)
        self._tasks = [asyncio.create_task(self._read(reader)), asyncio.create_task(self._watch())]

    async def _receive(self, inbox: asyncio.Queue[Frame]) -> Frame:
        if inbox.empty():
            self._raise_if_dead()
        frame = await inbox.get()
        if frame.get("type") == "failed":
            raise from_json(frame["error"])
        return frame

    def _raise_if_dead(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closing:
            raise EngineCrashed("The engine was closed.")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            async for frame in read_frames(reader):
                self._silence = 0.0
                self._deliver(frame)
        except EngineCrashed as error:
            self._fail(error)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            self._fail(EngineCrashed(f"The model worker sent something that is not a frame: {error!r}."))
        code = await self._wait_for_exit()
        self._fail(EngineCrashed(*self._exit_message(code)))

    def _deliver(self, frame: Frame) -> None:
        match frame:
            case {"type": "chunks", "chunks": chunks}:
                for key, body in chunks:
                    if key in self._inboxes:
                        self._inboxes[key].put_nowait(body)
            case {"type": "loading", "stage": _, "fraction": _} | {
                "type": "ready",
                "details": _,
                "context_length": _,
                "sees": _,
            }:
                self._inboxes[0].put_nowait(frame)
            case {"type": "failed", "error": error}:
                self._fail(from_json(error))
            case {"type": "beat", "running": running, "busy_s": busy_s}:
                self.running, self._busy_s = int(running), float(busy_s)
            case {"type": "stats"}:
                self._stats.pop(0).set_result(frame)
            case _:
                raise ValueError(str(frame.get("type"))[:40])

    async def _watch(self) -> None:
        """End the worker when it has been silent for too long. The silence is a sum of short measured intervals and not
        the difference of two times, because a server that was suspended could not receive frames meanwhile."""
        while self._error is None:
            before = time.monotonic()
            await asyncio.sleep(CHECK_S)
            self._silence += min(time.monotonic() - before, 2 * CHECK_S)
            limit = self._silent_s if self._loaded else max(self._silent_s, LOADING_SILENT_S)
            # A step may also hang without holding Python's lock. The worker then still sends beats, and these report
            # how long the step has been running.
            stuck = max(self._silence, self._busy_s if self._loaded else 0.0)
            if stuck > limit:
                self._fail(
                    EngineCrashed(
                        f"The model worker did not answer for {stuck:.0f} s and was stopped.",
                        hint="Ask again: a new worker starts. If it happens again, use a smaller model.",
                    )
                )
                self._kill()

    def _fail(self, error: AgentKernelError) -> None:
        """Make everything that waits for this worker raise ``error``. Only the first error counts."""
        if self._error is None:
            self._error = error
            self.crashed = not self._closing
            for inbox in self._inboxes.values():
                inbox.put_nowait({"type": "failed", "error": error.to_json()})
            for answer in self._stats:
                if not answer.done():
                    answer.set_exception(error)

    async def _wait_for_exit(self) -> int:
        """Return the exit code of the worker. If it does not end within END_S seconds, kill it."""
        try:
            return await asyncio.wait_for(self._process.wait(), END_S)
        except TimeoutError:
            self._kill()
            return await self._process.wait()

    def _kill(self) -> None:
        # Process.kill is not used: it polls first, and so may take the exit code away from asyncio's own watcher.
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    def _exit_message(self, code: int) -> tuple[str]:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        memory = " The system may have run out of memory." if code == -signal.SIGKILL else ""
        return (f"The model worker {how}.{memory}{self._last_log_line()}",)

    def _last_log_line(self) -> str:
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - LOG_TAIL))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return f" Its last line: {lines[-1]}" if lines else ""


def _environ(python: str) -> dict[str, str]:
    """Return the environment variables for the worker: those of this process, and ALLOCATOR unless the user has set
    other values. If ``python`` is not this process's interpreter, variables with paths for this interpreter are left
    out."""
    own = os.path.samefile(python, sys.executable) if os.path.exists(python) else True
    dropped = set() if own else {"PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__"}
    return {"GLIBC_TUNABLES": ALLOCATOR} | {name: value for name, value in os.environ.items() if name not in dropped}

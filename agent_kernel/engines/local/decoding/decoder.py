"""Runs the backend in one thread. Requests join and leave the batch between steps, never during one.

All calls of the backend share this thread, so that the machine's cores work on one job at a time: encoding a prompt
waits until the running step has ended.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, TypeVar

from agent_kernel.engines.local.backend import Backend, DecodingOptions, Picture, StepOutput

Result = TypeVar("Result")


class Decoder:
    """Runs the backend's steps, and functions that use the backend (jobs), in a thread. It must be created and used in
    a running event loop. If a step raises an error, ``failed`` is called in the loop with it: the state of the library
    is then unknown, and the process should end."""

    def __init__(self, backend: Backend, failed: Callable[[BaseException], None]) -> None:
        self._backend = backend
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._pieces: dict[int, asyncio.Queue[StepOutput]] = {}
        self._busy_since = 0.0
        threading.Thread(target=self._run, name="decoder", daemon=True).start()

    @property
    def running(self) -> int:
        """The number of requests in the batch."""
        return len(self._pieces)

    @property
    def busy_s(self) -> float:
        """Seconds that the running job or step has taken so far, 0 when idle."""
        since = self._busy_since
        return time.monotonic() - since if since else 0.0

    async def call(self, job: Callable[[], Result]) -> Result:
        """Run ``job`` in the decoder's thread, between two steps, and return its result."""
        future: asyncio.Future[Result] = self._loop.create_future()

        def run() -> None:
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001  ``call`` raises it in the caller's task
                self._loop.call_soon_threadsafe(_settle, future, None, error)
            else:
                self._loop.call_soon_threadsafe(_settle, future, result, None)

        self._jobs.put(run)
        return await future

    async def generate(
        self, ids: Sequence[int], decoding: DecodingOptions, pictures: Sequence[Picture] = ()
    ) -> AsyncGenerator[StepOutput, None]:
        """Submit a request and yield its outputs until it has ended. Closing the generator removes the request from the
        batch."""
        pieces: asyncio.Queue[StepOutput] = asyncio.Queue()
        # The thread stores the key here, so that a request cancelled during its submission can still be withdrawn.
        keys: list[int] = []

        def submit() -> None:
            keys.append(self._backend.submit(ids, decoding, pictures))
            self._pieces[keys[0]] = pieces

        try:
            await self.call(submit)
            while True:
                piece = await pieces.get()
                yield piece
                if piece.finish:
                    return
        finally:
            self._jobs.put(lambda: self._withdraw(keys))

    def _withdraw(self, keys: list[int]) -> None:
        for key in keys:
            if self._pieces.pop(key, None) is not None:
                self._backend.cancel(key)

    def _run(self) -> None:
        try:
            while True:
                self._run_jobs()
                if self._backend.running():
                    self._run_timed(self._step)
                    # The step held Python's lock. The sleep lets the thread run that serves the pipe.
                    time.sleep(0)
        except BaseException as error:  # noqa: BLE001  reported to the process's owner, which ends it
            self._loop.call_soon_threadsafe(self._failed, error)

    def _run_jobs(self) -> None:
        """Run the functions that other threads have put into the queue. If no request is being decoded, wait until
        there is such a function."""
        idle = not self._backend.running()
        while idle or not self._jobs.empty():
            self._run_timed(self._jobs.get())
            idle = False

    def _run_timed(self, work: Callable[[], Any]) -> None:
        self._busy_since = time.monotonic()
        work()
        self._busy_since = 0.0

    def _step(self) -> None:
        for key, piece in self._backend.step():
            # The request is removed before its last piece is sent, so that the reader of this piece no longer finds it
            # in the batch.
            pieces = self._pieces.pop(key, None) if piece.finish else self._pieces.get(key)
            if pieces is not None:
                self._loop.call_soon_threadsafe(pieces.put_nowait, piece)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)

"""Waits until work has ended, even if the caller is cancelled, and until cancelled tasks have ended."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import defaultdict
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def await_uncancelled(work: Awaitable[T] | Future[T], *, may_skip: bool = False) -> T:
    """Return the result of ``work``, which may run in a thread. If the caller is cancelled, the function still waits
    until the work has ended, and only then raises CancelledError.

    If the work ended with an exception, this is the cause of the CancelledError. With ``may_skip``, work that has not
    started yet is not run at all.
    """
    future = work if isinstance(work, Future) else asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        # Every wait has a new asyncio future, because a cancelled wait must not cancel ``future``, whose work
        # continues. asyncio.wait and wrap_future would take a quarter of the time of a short call of a store.
        woken = loop.create_future()
        future.add_done_callback(functools.partial(_wake, loop, woken))
        try:
            await woken
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
            if may_skip:
                future.cancel()
    if cancelled is None:
        return future.result()
    raise cancelled from (None if future.cancelled() else future.exception())


async def cancel_tasks(*tasks: asyncio.Future[Any] | None, reason: str | None = None) -> None:
    """Cancel the tasks, and wait until all of them have ended. None stands for a task that was never started."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel(reason)
    if running:
        await asyncio.wait(running)


class RunningTasks:
    """Tasks that nobody awaits while they run. This object refers to them, because an event loop only has weak
    references."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name)
        self.add(task)
        return task

    def add(self, task: asyncio.Future[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until all tasks have ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def cancel(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        await cancel_tasks(*self._tasks)


@contextmanager
def wake_together() -> Iterator[None]:
    """Collect the wake-ups of tasks whose work this thread ends inside the ``with`` block, and send them at its end,
    with one call for each event loop. A wake-up takes a system call, and lets the event loop run before the thread
    ends the next work."""
    waiting: defaultdict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = defaultdict(list)
    _together.waiting = waiting
    try:
        yield
    finally:
        del _together.waiting
        for loop, woken in waiting.items():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_end_waits, woken)


_together = threading.local()


def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None], done: Any) -> None:
    """Wake the waiting task, also from another thread. If its event loop is closed (RuntimeError), no task is waiting
    any more."""
    if (waiting := getattr(_together, "waiting", None)) is not None:
        waiting[loop].append(woken)
        return
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_end_waits, [woken])


def _end_waits(waiting: Sequence[asyncio.Future[None]]) -> None:
    for woken in waiting:
        if not woken.done():
            woken.set_result(None)

"""Runs a blocking call in a thread of its own, so that a call that hangs blocks neither the event loop nor the exit of
the process, and uses no slot of the shared thread pool."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_own_thread(function: Callable[[], T], name: str) -> T:
    """Return or raise what ``function`` does. If the caller is cancelled, the thread continues until the call ends."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: Exception | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(result)  # type: ignore[arg-type]  # T itself may be None
        else:
            outcome.set_exception(error)

    def run() -> None:
        result: T | None = None
        error: Exception | None = None
        try:
            result = context.run(function)
        except BaseException as raised:  # noqa: BLE001  raised again in the waiting task
            # sys.exit() in a function must not end this process, and a future cannot hold a StopIteration.
            if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
                error = raised
            else:
                error = RuntimeError(f"{type(raised).__name__}: {raised}")
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await outcome

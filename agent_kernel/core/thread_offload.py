"""Blocking calls of others, each in a thread of its own: what hangs holds neither the event loop nor the end of the
process, and takes no place in the pool that everything else shares."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_own_thread(function: Callable[[], T], name: str) -> T:
    """What ``function`` returns or raises. Who is cancelled leaves the thread behind: it ends when the call does."""
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
        except BaseException as raised:  # noqa: BLE001  whoever waits gets it
            # sys.exit() of a function is not the end of this process, and a future can not hold a StopIteration.
            if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
                error = raised
            else:
                error = RuntimeError(f"{type(raised).__name__}: {raised}")
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await outcome

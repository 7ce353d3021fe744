"""Runs a blocking call in a thread of its own, so that a call that hangs blocks neither the event loop nor the exit of
the process, and uses no slot of the shared thread pool."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def run_in_own_thread(function: Callable[[], T], name: str) -> T:
    """Call ``function`` in a new thread, and return its result or raise its exception. If the caller is cancelled, the
    thread continues until the call ends."""
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # from now on, cancelling the caller does not change the outcome
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.set_result(context.run(function))
        except BaseException as error:  # noqa: BLE001  raised again in the waiting task
            # sys.exit() in a function must not end this process, and an asyncio future cannot hold a StopIteration.
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            outcome.set_exception(error if is_plain else RuntimeError(f"{type(error).__name__}: {error}"))

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(outcome)

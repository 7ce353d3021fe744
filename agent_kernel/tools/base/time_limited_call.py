"""Calls a user's function with a time limit, so that it blocks neither the event loop, nor the turn, nor the server."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

from agent_kernel.core.protocols import ToolOutput
from agent_kernel.core.thread_offload import run_in_own_thread
from agent_kernel.tools.base.function_result import output_of

TIMEOUT_S = 60.0
HUNG = 4
"""Maximum number of calls of one function that have exceeded their time and still run. At this number the function is
not called any more."""


class TimeLimitedFunction:
    """Calls ``function``, sync or async, for the tool ``name``.

    After ``timeout_s`` seconds the call returns a timeout result. An async function is then cancelled. A sync function
    runs in a thread of its own; a thread cannot be stopped, so the function continues.
    """

    def __init__(self, function: Callable[..., Any], name: str, timeout_s: float = TIMEOUT_S) -> None:
        self._function = function
        self._name = name
        self._timeout_s = timeout_s
        self._late: list[threading.Event] = []

    async def __call__(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the function with these arguments and return its result as a ToolOutput. Raises what the function
        raises."""
        self._late = [ended for ended in self._late if not ended.is_set()]
        if len(self._late) >= HUNG:
            return ToolOutput(f"{HUNG} earlier calls of it did not end and still run; it is not called.", "error")
        ended = threading.Event()
        work = asyncio.create_task(self._output(ended, *args, **kwargs))
        # The exception is retrieved here, because the caller may have been cancelled, and asyncio would log an
        # exception that nobody retrieves.
        work.add_done_callback(lambda work: work.cancelled() or work.exception())
        try:
            done, _ = await asyncio.wait([work], timeout=self._timeout_s)
        finally:
            work.cancel()
        if done:
            return work.result()
        self._late.append(ended)
        return ToolOutput(f"It did not end within {self._timeout_s:g} s, and may still run.", "timeout")

    async def _output(self, ended: threading.Event, *args: Any, **kwargs: Any) -> ToolOutput:
        """Run the call, return its output, and set ``ended`` when no part of the call runs any more."""
        if _is_async(self._function):
            try:
                return output_of(await self._function(*args, **kwargs), self._name)
            finally:
                ended.set()

        def call() -> Any:
            try:
                value = self._function(*args, **kwargs)
                return value if inspect.isawaitable(value) else output_of(value, self._name)
            finally:
                ended.set()

        value = await run_in_own_thread(call, f"tool {self._name}")
        return output_of(await value, self._name) if inspect.isawaitable(value) else value


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004

"""Runs background work for sessions: one task at a time for each session. The session's next turn cancels the task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from agent_kernel.core.errors import Conflict
from agent_kernel.core.session import SessionKey
from agent_kernel.core.shielded_await import cancel_tasks

T = TypeVar("T")


class BackgroundTasks:
    def __init__(self) -> None:
        self._tasks: dict[SessionKey, asyncio.Task[Any]] = {}
        self._closed = False

    def is_running(self, key: SessionKey) -> bool:
        return key in self._tasks

    def start(self, key: SessionKey, work: Coroutine[Any, Any, T]) -> asyncio.Task[T] | None:
        """Start a task. Returns None, and closes ``work``, if another task of this session runs or after ``aclose``."""
        if self._closed or key in self._tasks:
            work.close()
            return None
        task = self._tasks[key] = asyncio.create_task(work, name=f"background work of session {key.id}")
        task.add_done_callback(lambda ended: self._remove(key, ended))
        return task

    async def run_next(self, key: SessionKey, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for the current task of the session, then run ``work`` and return its result. Raises Conflict if the
        current task or ``work`` is cancelled, because a turn begins or the server stops."""
        while (before := self._tasks.get(key)) is not None:
            await asyncio.wait([before])
            if before.cancelled():
                raise self._cancellation_error()
        task = self.start(key, work())
        if task is None:
            raise self._cancellation_error()
        await asyncio.wait([task])
        if task.cancelled():
            raise self._cancellation_error()
        return task.result()

    async def give_way(self, key: SessionKey) -> None:
        """Cancel the task of the session, if there is one, and wait for its end. Called when a turn of the session
        begins."""
        await cancel_tasks(self._tasks.get(key), reason="a turn began")

    async def aclose(self) -> None:
        self._closed = True
        await cancel_tasks(*self._tasks.values(), reason="the server stops")

    def _remove(self, key: SessionKey, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled():
            task.exception()  # retrieved here, so that asyncio does not log it for tasks that nobody awaits

    def _cancellation_error(self) -> Conflict:
        """Return the error that says why a task was cancelled. Only ``aclose`` and ``give_way`` cancel tasks."""
        if self._closed:
            return Conflict("The server is shutting down.")
        return Conflict(
            "The operation was cancelled because a turn of this session began.", hint="Try again after the turn."
        )

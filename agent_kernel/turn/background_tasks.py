"""Work for a session that nobody waits for: one errand at a time, and it gives way to the next turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from agent_kernel.core.errors import Conflict
from agent_kernel.core.session import SessionKey

T = TypeVar("T")


class BackgroundTasks:
    def __init__(self) -> None:
        self._tasks: dict[SessionKey, asyncio.Task[Any]] = {}
        self._closed = False

    def running(self, key: SessionKey) -> bool:
        return key in self._tasks

    def start(self, key: SessionKey, work: Coroutine[Any, Any, T]) -> asyncio.Task[T] | None:
        """None, and the work is not done, while another errand of this session runs or after ``aclose``."""
        if self._closed or key in self._tasks:
            work.close()
            return None
        task = self._tasks[key] = asyncio.create_task(work, name=f"errand of {key.id}")
        task.add_done_callback(lambda done: self._ended(key, done))
        return task

    async def done(self, key: SessionKey, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the work gave, after the errand that runs now. Raises Conflict if either had to give way."""
        while (before := self._tasks.get(key)) is not None:
            await asyncio.wait([before])
            if before.cancelled():
                raise superseded_error()
        task = self.start(key, work())
        if task is None:
            raise Conflict("The server stops.")
        await asyncio.wait([task])
        if task.cancelled():
            raise superseded_error()
        return task.result()

    async def give_way(self, key: SessionKey) -> None:
        """Ends the errand of a session, if there is one, and waits for its end."""
        if task := self._tasks.get(key):
            task.cancel("a turn began")
            await asyncio.wait([task])

    async def aclose(self) -> None:
        self._closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel("the server stops")
        if tasks:
            await asyncio.wait(tasks)

    def _ended(self, key: SessionKey, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled():
            task.exception()  # whoever waits for it is told; nobody else needs to be


def superseded_error() -> Conflict:
    return Conflict("A turn of this session began, and that was given up.", hint="Try again after it.")

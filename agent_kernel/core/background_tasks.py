"""The asyncio tasks that an object starts beside its other work, and waits for before it closes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class BackgroundTasks:
    """Holds a reference to each unfinished task, without which asyncio may lose a running task. A finished task is
    removed; its owner reads the result, if there is one."""

    _unfinished: set[asyncio.Future[Any]] = field(default_factory=set)

    def add(self, task: asyncio.Future[Any]) -> None:
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)

    async def wait(self) -> None:
        """Wait until the tasks that are unfinished now have ended, however they end."""
        if self._unfinished:
            await asyncio.wait(self._unfinished)

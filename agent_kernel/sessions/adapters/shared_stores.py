"""The stores that this process has opened by their path: sessions on one file share one connection and one thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore

T = TypeVar("T")
MEMORY = ":memory:"


@dataclass(slots=True)
class OpenFile:
    """``users`` is how many have not given it back. A file in memory has one."""

    store: SqliteStore
    place: tuple[int, Path] | None = None
    users: int = 1


class Files:
    """A file is opened again in a process that was forked: neither thread nor connection live on there."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, Path], OpenFile] = {}
        self._lock = threading.Lock()

    def take(self, path: str | Path, *, durable: bool = False) -> OpenFile:
        """``durable`` is of whoever opens the file first."""
        if str(path) == MEMORY:
            return OpenFile(MemoryStore())
        place = os.getpid(), Path(path).expanduser().resolve()
        with self._lock:
            if place in self._open:
                self._open[place].users += 1
            else:
                self._open[place] = OpenFile(SqliteStore(place[1], durable=durable), place)
            return self._open[place]

    def give_back(self, file: OpenFile) -> None:
        """The last one closes the store, and waits for that."""
        with self._lock:
            file.users -= 1
            if file.users:
                return
            if file.place is not None:
                self._open.pop(file.place, None)
        if file.place is None or file.place[0] == os.getpid():
            waited_for(file.store.aclose())


def waited_for(work: Coroutine[Any, Any, T]) -> T:
    """Its result, in a loop of its own: the caller may be one without a loop, or in the middle of one."""
    with ThreadPoolExecutor(1, thread_name_prefix="agent-kernel-peers") as thread:
        return thread.submit(asyncio.run, work).result()


FILES = Files()

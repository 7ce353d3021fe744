"""Stores that this process has opened by path: sessions on one file share one connection and thread."""

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
    """``users`` counts the holders that have not released the file. A database in memory has only one."""

    store: SqliteStore
    place: tuple[int, Path] | None = None
    users: int = 1


class SharedStores:
    """The open files by process id and path. A file is opened again in a forked process, where thread and connection do
    not exist."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, Path], OpenFile] = {}
        self._lock = threading.Lock()

    def take(self, path: str | Path, *, durable: bool = False) -> OpenFile:
        """Open the file, or share it if this process has it open; then the value of ``durable`` that the first caller
        passed applies."""
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
        """Release the file. The last holder closes the store and waits for it."""
        with self._lock:
            file.users -= 1
            if file.users:
                return
            if file.place is not None:
                self._open.pop(file.place, None)
        if file.place is None or file.place[0] == os.getpid():
            run_blocking(file.store.aclose())


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` in a new loop on a thread, and return its result. The caller may or may not have a running loop."""
    with ThreadPoolExecutor(1, thread_name_prefix="agent-kernel-peers") as thread:
        return thread.submit(asyncio.run, work).result()


FILES = SharedStores()

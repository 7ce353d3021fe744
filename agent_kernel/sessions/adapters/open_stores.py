"""Opens SQLite files for the adapters of this process, so that all adapters on one file share its connection and
thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore

T = TypeVar("T")
MEMORY = ":memory:"


@dataclass(slots=True)
class OpenFile:
    """An open SQLite file. ``place`` is its process id and path, None for a database in memory. ``users`` is the number
    of adapters that use the file; a database in memory has only one."""

    store: SqliteStore
    place: tuple[int, Path] | None = None
    users: int = 1


class SharedStores:
    """The open SQLite files, by process id and path. A forked process opens a file again, because it does not have the
    thread and the connection of its parent.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[int, Path], OpenFile] = {}
        self._lock = threading.Lock()

    def take(self, path: str | Path, *, durable: bool = False) -> OpenFile:
        """Open the file at ``path``, or return the OpenFile that already exists for it in this process. In that case
        ``durable`` has no effect: the value of the first caller applies."""
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
        """Release the file. When its last user releases it, this closes the store and waits until it is closed."""
        with self._lock:
            file.users -= 1
            if file.users:
                return
            if file.place is not None:
                self._open.pop(file.place, None)
        if file.place is None or file.place[0] == os.getpid():
            run_blocking(file.store.aclose())


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` in a new loop on a thread, and return its result. This also works in a thread whose own event loop
    is running; that loop is blocked meanwhile."""
    with ThreadPoolExecutor(1, thread_name_prefix="agent-kernel-peers") as thread:
        return thread.submit(asyncio.run, work).result()


FILES = SharedStores()
S = TypeVar("S")


class StoreHolder(Generic[S]):
    """The store of one adapter object: a store that its caller closes, or the path of a SQLite file, which adapters on
    the same path share. ``name`` is used in error messages."""

    def __init__(self, name: str, place: S | str | Path, *, durable: bool) -> None:
        self._name = name
        self._durable = durable
        self._closed = False
        self._file: OpenFile | None = None
        self._given: S | None = None
        if isinstance(place, str | Path):
            self._file = FILES.take(place, durable=durable)
        else:
            self._given = place

    @property
    def store(self) -> S | SqliteStore:
        """The store. Raises RuntimeError after ``close``."""
        if self._closed:
            raise RuntimeError(f"{self._name} is closed")
        if self._file is None:
            assert self._given is not None, "a store or a file"
            return self._given
        if self._file.place is not None and self._file.place[0] != os.getpid():
            self._file = FILES.take(self._file.place[1], durable=self._durable)
        return self._file.store

    def close(self) -> None:
        """Release the SQLite file, which is closed when no other adapter uses it. A store of the caller stays open.
        Idempotent."""
        if not self._closed:
            self._closed = True
            if self._file is not None:
                FILES.give_back(self._file)

"""A log in the memory of one process: stores that share it behave like several servers with one database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from agent_kernel.sessions.log.log_store import GRACE_S, Append, Entry, LogConflict, Stream, Tail
from tests.sessions.log.memory_bus import MemoryBus

PAGE = 1000
"""Maximum number of entries that one ``read`` returns."""


class MemoryLog:
    """A LogStore in memory. ``clock`` stands for the clock of the database."""

    compares = True

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.name = "The log in memory"
        self._clock = clock
        self._lock = threading.Lock()
        self._bus = MemoryBus()
        self._positions: dict[str, int] = {}
        self._entries: dict[str, dict[int, Entry]] = {}
        self._heads: dict[Stream, int] = {}
        self._commits: dict[str, Mapping[Stream, int]] = {}
        self._blobs: dict[tuple[str, str], tuple[float, bytes]] = {}

    def read(self, after: Mapping[str, int], among: Collection[str] | None = None) -> Tail:
        with self._lock:
            found = [
                entry
                for namespace in sorted(self._entries if among is None else among)
                for position, entry in self._entries.get(namespace, {}).items()
                if position > after.get(namespace, 0)
            ]
            return Tail(self._clock(), found[:PAGE], len(found) > PAGE)

    def commit(
        self, id: str, appends: Sequence[Append], after: Mapping[str, int] | None = None
    ) -> Mapping[Stream, int]:
        with self._lock:
            if id in self._commits:
                return self._commits[id]
            if any(self._positions.get(name, 0) != last for name, last in (after or {}).items()):
                raise LogConflict
            if any(self._heads.get((one.namespace, one.session), 0) != one.expect for one in appends):
                raise LogConflict
            self._commits[id] = {
                (one.namespace, one.session): self._write(one, one.body) for one in appends if one.body is not None
            }
            return self._commits[id]

    def _write(self, one: Append, body: bytes) -> int:
        position = self._positions.get(one.namespace, 0) + 1
        entries = self._entries.setdefault(one.namespace, {})
        if one.replaces:
            for old in [old.position for old in entries.values() if old.session == one.session]:
                del entries[old]
        entries[position] = Entry(one.namespace, position, one.session, one.replaces, body)
        self._positions[one.namespace] = self._heads[one.namespace, one.session] = position
        return position

    def put_blob(self, namespace: str, digest: str, data: bytes) -> None:
        with self._lock:
            self._blobs[namespace, digest] = self._clock(), data

    def get_blob(self, namespace: str, digest: str) -> bytes | None:
        with self._lock:
            return self._blobs.get((namespace, digest), (0.0, None))[1]

    def touch_blobs(self, namespace: str, digests: Collection[str]) -> None:
        with self._lock:
            for place in {(namespace, digest) for digest in digests} & set(self._blobs):
                self._blobs[place] = self._clock(), self._blobs[place][1]

    def drop_blobs(self, named: Collection[tuple[str, str]], grace: float = GRACE_S) -> int:
        with self._lock:
            until = self._clock() - grace
            old = [place for place, (stored, _) in self._blobs.items() if place not in named and stored <= until]
            return sum(len(self._blobs.pop(place)[1]) for place in old)

    def bus(self) -> MemoryBus:
        """Return the bus of this log, which all callers share."""
        return self._bus

    def close(self) -> None:
        """Do nothing: there is no connection to release."""

"""A BatchTable in the memory of one process, with small limits: it tests ``BatchedLog`` without a database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from agent_kernel.sessions.log.batch_table import Batch, BatchPage, Blob, Data

PAGE = 7
PIECE_BYTES = 1 << 20


class MemoryTable:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.name = "The table in memory"
        self.now = clock
        self.lock = threading.RLock()
        self.batches: dict[int, Batch] = {}
        self.newest = 0
        self.pieces: dict[str, tuple[float, list[bytes]]] = {}
        self.media: dict[str, Blob] = {}

    def tail(self, after: int) -> BatchPage:
        with self.lock:
            found = [self.batches[number] for number in sorted(self.batches) if number > after]
            return BatchPage(self.now(), self.newest, found[:PAGE], len(found) > PAGE)

    def append(self, batch: Batch) -> bool:
        with self.lock:
            if batch.number != self.newest + 1:
                return False
            self.batches[batch.number] = batch
            self.newest = batch.number
            return True

    def fetch(self, numbers: Collection[int]) -> Sequence[Batch]:
        with self.lock:
            return [self.batches[number] for number in sorted(numbers) if number in self.batches]

    def rewrite(self, batches: Sequence[Batch]) -> bool:
        with self.lock:
            fit = [one for one in batches if one.number in self.batches]
            fit = [one for one in fit if self.batches[one.number].version == one.version - 1]
            self.batches |= {one.number: one for one in fit}
            return len(fit) == len(batches)

    def put_pieces(self, token: str, data: bytes) -> int:
        parts = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)] or [b""]
        with self.lock:
            self.pieces[token] = self.now(), parts
        return len(parts)

    def get_pieces(self, token: str, count: int) -> bytes | None:
        with self.lock:
            _, parts = self.pieces.get(token, (0.0, []))
            return b"".join(parts) if len(parts) == count else None

    def delete_pieces(self, token: str, count: int) -> None:
        with self.lock:
            self.pieces.pop(token, None)

    def old_pieces(self, until: float) -> Collection[tuple[str, int]]:
        with self.lock:
            return [(token, len(parts)) for token, (stored, parts) in self.pieces.items() if stored <= until]

    def create_blob(self, key: str, data: Data, size: int) -> bool:
        with self.lock:
            return self.media.setdefault(key, Blob(data, size, self.now())).data == data

    def get_blob(self, key: str) -> Blob | None:
        with self.lock:
            return self.media.get(key)

    def touch_blob(self, key: str) -> bool:
        with self.lock:
            if key in self.media:
                self.media[key] = replace(self.media[key], stored=self.now())
            return key in self.media

    def blobs(self) -> Sequence[tuple[str, Blob]]:
        with self.lock:
            return [*self.media.items()]

    def delete_blob(self, key: str, until: float) -> bool:
        with self.lock:
            if key in self.media and self.media[key].stored <= until:
                del self.media[key]
            return key not in self.media

    def close(self) -> None:
        """Do nothing, because there is no connection."""

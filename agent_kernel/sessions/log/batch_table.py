"""What a database without transactions over many items must do, so that ``batched_log.py`` can keep a log in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

INLINE_BYTES = 32 * 1024
"""Larger bytes are stored as pieces beside the item that names them."""
REWRITTEN_AT_ONCE = 100
"""Batches that one call of ``fetch`` and ``rewrite`` gets: DynamoDB allows so many items in one transaction."""
STUB_KEPT_S = 86_400
"""How long a batch without entries is kept, so that its commit can be repeated."""


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes of an item: ``inline``, or ``count`` pieces under ``token``."""

    inline: bytes = b""
    token: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """All entries of one commit. Numbers are 1, 2, 3, ...; ``version`` counts how often the data were rewritten. A
    batch that ``expires`` has no entries any more."""

    number: int
    commit: str
    data: Data
    version: int = 0
    expires: bool = False


@dataclass(frozen=True, slots=True)
class BatchPage:
    """``now`` is the database's time in seconds since the epoch, ``newest`` the number of the last batch there is.
    ``more``: batches behind these were left out."""

    now: float
    newest: int
    batches: Sequence[Batch]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Blob:
    """``stored`` is the time at which the bytes were stored or touched; ``create_blob`` takes it from the database."""

    data: Data
    size: int
    stored: float = 0.0


class BatchTable(Protocol):
    """Items in a shared database. Every method raises StoreError when the database cannot be used, and may be repeated
    after that: a call whose reply was lost has happened or not."""

    name: str

    def now(self) -> float: ...

    def tail(self, after: int) -> BatchPage:
        """Return the batches behind ``after`` in their order. A batch that was appended before a returned one was last
        rewritten is among them, or ``more`` is set."""

    def append(self, batch: Batch) -> bool:
        """Store the batch if its number follows that of the newest batch; otherwise return False. This is the only
        step that makes entries visible."""

    def fetch(self, numbers: Collection[int]) -> Sequence[Batch]:
        """Return those of these batches that exist."""

    def rewrite(self, batches: Sequence[Batch]) -> bool:
        """Replace the data of each batch whose stored version is one less than its own. Returns False if others were
        rewritten or deleted meanwhile. Batches that expire are deleted by the database after STUB_KEPT_S."""

    def put_pieces(self, token: str, data: bytes) -> int:
        """Store bytes and return the number of their pieces."""

    def get_pieces(self, token: str, count: int) -> bytes | None:
        """Return the bytes, or None if pieces are missing."""

    def delete_pieces(self, token: str, count: int) -> None: ...

    def old_pieces(self, until: float) -> Collection[tuple[str, int]]:
        """Return the tokens and counts of pieces that were stored before this time."""

    def create_blob(self, key: str, data: Data, size: int) -> bool:
        """Store it, stored now, or return False if there is one with this key."""

    def get_blob(self, key: str) -> Blob | None: ...

    def touch_blob(self, key: str) -> bool:
        """Count it as stored now. Returns False if there is none."""

    def blobs(self) -> Iterable[tuple[str, Blob]]: ...

    def delete_blob(self, key: str, until: float) -> bool:
        """Delete it if it was stored before this time and not touched since; return whether it is gone now."""

    def close(self) -> None: ...

"""The interface of a database that cannot write many items in one transaction. ``batched_log.py`` stores a
log in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

INLINE_BYTES = 32 * 1024
"""Maximum number of bytes that are stored in an item itself. More bytes are stored as pieces beside the item."""
REWRITTEN_AT_ONCE = 100
"""Maximum number of batches in one call of ``fetch`` or ``rewrite``: DynamoDB allows 100 items in one transaction."""
STUB_KEPT_S = 86_400
"""Seconds for which a batch is kept after its last entry was removed. Until then, a writer that received no reply can
repeat the commit of the batch."""


@dataclass(frozen=True, slots=True)
class Data:
    """The bytes of an item: either ``inline``, or in ``count`` pieces that are stored under ``token``."""

    inline: bytes = b""
    token: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """All entries of one commit. Batches are numbered 1, 2, 3, ...; ``version`` counts how often the data were
    rewritten. A batch with ``expires`` no longer contains entries.
    """

    number: int
    commit: str
    data: Data
    version: int = 0
    expires: bool = False


@dataclass(frozen=True, slots=True)
class BatchPage:
    """The result of one read. ``now`` is the database's time in seconds since the epoch, ``newest`` the number of the
    last batch in the table. ``more`` is true if the read left out later batches.
    """

    now: float
    newest: int
    batches: Sequence[Batch]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Blob:
    """The stored bytes of a medium. ``stored`` is the time at which they were stored, or last marked as still in use;
    ``create_blob`` takes it from the clock of the database.
    """

    data: Data
    size: int
    stored: float = 0.0


class BatchTable(Protocol):
    """The items in a shared database. Every method raises StoreError when the database cannot be used. The caller may
    then repeat the call, although it may have taken effect without a reply.
    """

    name: str

    def now(self) -> float: ...

    def tail(self, after: int) -> BatchPage:
        """Return the batches after number ``after`` in order. Every batch that was appended before the last
        rewrite of a returned batch is returned too, or ``more`` is set."""

    def append(self, batch: Batch) -> bool:
        """Store the batch if its number follows that of the newest batch; otherwise return False. This is the only
        step that makes entries visible."""

    def fetch(self, numbers: Collection[int]) -> Sequence[Batch]:
        """Return the batches with these numbers that exist."""

    def rewrite(self, batches: Sequence[Batch]) -> bool:
        """Replace the data of each batch, if its stored version is one less than the new one. Returns False if another
        writer has rewritten or deleted some of them. If a batch has ``expires``, the database deletes it STUB_KEPT_S
        seconds after this call.
        """

    def put_pieces(self, token: str, data: bytes) -> int:
        """Store bytes in pieces under a token, and return the number of pieces."""

    def get_pieces(self, token: str, count: int) -> bytes | None:
        """Return the bytes, or None if some of the pieces are missing."""

    def delete_pieces(self, token: str, count: int) -> None: ...

    def old_pieces(self, until: float) -> Collection[tuple[str, int]]:
        """Return the tokens and counts of pieces that were stored before ``until`` (seconds since the epoch)."""

    def create_blob(self, key: str, data: Data, size: int) -> bool:
        """Store the description of a medium with the present time, or return False if one with this key exists."""

    def get_blob(self, key: str) -> Blob | None: ...

    def touch_blob(self, key: str) -> bool:
        """Set the time of a medium to now. Returns False if the medium does not exist."""

    def blobs(self) -> Iterable[tuple[str, Blob]]: ...

    def delete_blob(self, key: str, until: float) -> bool:
        """Delete a medium if it was neither stored nor touched after ``until`` (seconds since the epoch). Returns True
        if the medium no longer exists after the call."""

    def close(self) -> None: ...

"""Defines the interface to a shared database, which keeps an ordered log of changes for each namespace, and the bytes
of media."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent_kernel.sessions.log.message_bus import MessageBus

Stream = tuple[str, str]
"""(namespace, session id): identifies the entries about one session. The session id "" stands for data that belongs to
no session, such as bindings."""
ENCRYPTED = b"\0AK1"
"""The bytes with which every entry and blob begins that ``encrypted_log.py`` wrote."""
GRACE_S = 3600.0
"""Seconds for which bytes that no entry names are kept after they were last stored or touched."""


class LogConflict(Exception):
    """Raised if another writer was first: a stream has a later entry than the writer knew. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One change in the log. The positions within a namespace are 1, 2, 3, ... and become visible in this order. If
    ``replaces`` is true, the entry contains the whole stream, and the earlier entries of the stream were deleted."""

    namespace: str
    position: int
    session: str
    replaces: bool
    body: bytes


@dataclass(frozen=True, slots=True)
class Append:
    """An entry to be written if the last position of its stream is ``expect`` (0: the stream has no entry). If ``body``
    is None, nothing is written and only the position is checked."""

    namespace: str
    session: str
    expect: int
    body: bytes | None
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Tail:
    """The new entries that one read returns. ``now`` is the time of the database in seconds since the epoch. If
    ``more`` is true, there are further entries, which the next read returns."""

    now: float
    entries: Sequence[Entry]
    more: bool = False


class LogStore(Protocol):
    """A log in a shared database. Only one thread at a time may use it. Every method raises StoreError while the
    database cannot be used; a later call connects again. ``name`` is the name of the log in messages to people; it
    contains no password. If ``compares`` is false, ``commit`` ignores its parameter ``after``, so the writer has to
    read before each write. The value may become true during the first call."""

    name: str

    @property
    def compares(self) -> bool: ...

    def read(self, after: Mapping[str, int], among: Collection[str] | None = None) -> Tail:
        """Return the entries of all namespaces after the positions ``after`` (0 for a namespace that is not in it),
        sorted by namespace and position. All are read at one moment. If there are too many entries for one read, a part
        of them is returned and ``more`` is set; of each namespace, this part has the earliest entries without gaps.

        A caller that needs only some namespaces passes them as ``among``. A log that can select namespaces then reads
        no others, so that the time does not depend on the number of all namespaces. A log that cannot reads all.
        """

    def commit(
        self, id: str, appends: Sequence[Append], after: Mapping[str, int] | None = None
    ) -> Mapping[Stream, int]:
        """Write all entries or none, and return their positions. Raises LogConflict if an entry does not follow the
        last entry of its stream, or if a namespace had an entry after the position that ``after`` states when the call
        began. So a writer need not read before it writes.

        If ``id`` was committed before, nothing is written and the first result is returned again, so that a writer that
        received no reply can repeat the call. A commit in which no append has a body writes nothing; a repeated call
        may check the positions again and raise LogConflict."""

    def put_blob(self, namespace: str, digest: str, data: bytes) -> None:
        """Store bytes of media under their hash. The caller does this before it writes an entry that names the hash."""

    def get_blob(self, namespace: str, digest: str) -> bytes | None: ...

    def touch_blobs(self, namespace: str, digests: Collection[str]) -> None:
        """Treat these bytes as stored now, so that ``drop_blobs`` keeps them for another GRACE_S."""

    def drop_blobs(self, referenced: Collection[tuple[str, str]], grace: float = GRACE_S) -> int:
        """Delete the media whose (namespace, digest) is not among ``referenced`` and that were not stored or touched
        within the last ``grace`` seconds. Returns the total size of the deleted media in bytes."""

    def bus(self) -> MessageBus | None:
        """Return a new bus in the same database, with connections of its own; None if the servers of this database
        cannot send each other messages."""

    def close(self) -> None:
        """Release the connection. A later call connects again."""


def map_positions(appends: Sequence[Append], positions: Sequence[int]) -> Mapping[Stream, int]:
    """Return for each stream that a commit wrote the position of its new entry. ``positions`` has one number for each
    of ``appends``; the numbers of those that only checked a position are left out."""
    return {
        (row.namespace, row.session): int(position)
        for row, position in zip(appends, positions, strict=True)
        if row.body is not None
    }

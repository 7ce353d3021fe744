"""What a shared database must do: keep an ordered log of changes for each namespace, and the bytes of media."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Stream = tuple[str, str]
"""(namespace, session). The session "" stands for what belongs to no session, such as bindings."""
ENCRYPTED = b"\0AK1"
"""Beginning of an entry and of a medium that ``encrypted_log.py`` wrote."""
GRACE_S = 3600.0
"""Seconds for which bytes without a row are kept after they were last stored or named."""


class LogConflict(Exception):
    """Another writer was first: a stream has a later entry than the writer knew. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A change of a stream. Positions of a namespace are 1, 2, 3, ... and become visible in this order. An entry that
    ``replaces`` stands for all earlier ones of its stream, which no longer exist."""

    namespace: str
    position: int
    session: str
    replaces: bool
    body: bytes


@dataclass(frozen=True, slots=True)
class Append:
    """An entry to be written if the last position of its stream is ``expect`` (0: the stream has none). Without a body
    only the position is checked."""

    namespace: str
    session: str
    expect: int
    body: bytes | None
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Tail:
    """``now`` is the time of the database in seconds since the epoch. ``more``: read again for the rest."""

    now: float
    entries: Sequence[Entry]
    more: bool = False


class LogStore(Protocol):
    """A log in a shared database. One thread uses it at a time. Every method raises StoreError when the database cannot
    be used, and works again when it can. ``name`` is shown to people and contains no password."""

    name: str

    def read(self, after: Mapping[str, int]) -> Tail:
        """Return the entries of all namespaces behind these positions (0 for a namespace that is not named), sorted by
        namespace and position. The entries are those of one moment, and a first part of them if ``more`` is set."""

    def commit(self, id: str, appends: Sequence[Append]) -> Mapping[Stream, int]:
        """Write all entries or none, and return their positions. Raises LogConflict if one of them does not follow the
        last entry of its stream. If ``id`` was committed before, nothing is written and the result is that of the first
        time, so that a writer that received no reply can repeat the call."""

    def put_blob(self, namespace: str, digest: str, data: bytes) -> None:
        """Store bytes before an entry names them."""

    def get_blob(self, namespace: str, digest: str) -> bytes | None: ...

    def touch_blobs(self, namespace: str, digests: Collection[str]) -> None:
        """Count these bytes as stored now, so that ``drop_blobs`` keeps them for another GRACE_S."""

    def drop_blobs(self, named: Collection[tuple[str, str]], grace: float = GRACE_S) -> int:
        """Delete the bytes that are not among ``named`` (namespace, digest) and were not stored or touched within the
        last ``grace`` seconds. Returns how many bytes that were."""

    def close(self) -> None:
        """Release the connection. A later call connects again."""

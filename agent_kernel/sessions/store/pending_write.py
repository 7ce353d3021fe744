"""Describes a write before it is made, so that the same or another process can find out later whether it was stored.

There are three results: the messages are stored; they are not stored and the history is unchanged; or the history has
changed in another way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agent_kernel.core.errors import Conflict, InvalidRequest
from agent_kernel.core.messages import Message
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Item, SessionKey
from agent_kernel.sessions import serialization

TAIL = 8
"""Maximum number of items before the new messages that a PendingWrite describes by a digest."""
_ROUND = 200
"""Number of items that are read in addition to the new messages and the described items before them. If the new
messages begin with tool results, the message with their calls must be read as well."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """Describes the append of messages to a session, so that it can be found out later whether the store has them: a
    reply of the store may be lost. The session's items number ``expect_seq`` + 1 to ``expect_seq`` + ``count`` contain
    the messages, and the last of them belongs to ``turn``. ``batch`` is the digest of the messages. ``before`` is the
    digest of the items before them, of which ``tail`` is the number."""

    namespace: str
    session: str
    turn: str
    expect_seq: int
    count: int
    batch: str
    tail: int = 0
    before: str = ""

    @classmethod
    def of(
        cls, key: SessionKey, turn: str, expect_seq: int, messages: Sequence[Message], before: Sequence[Item] = ()
    ) -> PendingWrite:
        """Describe the append of ``messages``. ``before`` are the newest items before them. Without ``before`` only the
        messages are described, which is enough for the process that holds the turn's lease. Raises InvalidRequest for
        messages that no store accepts."""
        tail = before[-TAIL:]
        batch = _digest(map(serialization.encode, messages))
        return cls(key.namespace, key.id, turn, expect_seq, len(messages), batch, len(tail), _digest_items(tail))

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.namespace, self.session)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> PendingWrite:
        """Parse the result of ``to_json``. Raises InvalidRequest for anything else."""
        try:
            pending = cls(**body)
            kinds = [type(value) for value in (pending.expect_seq, pending.count, pending.tail)]
        except TypeError as error:
            raise InvalidRequest(f"This is not the JSON of a PendingWrite: {error}.") from error
        if kinds != [int] * 3 or not all(isinstance(text, str) for text in (pending.batch, pending.before)):
            raise InvalidRequest("This is not the JSON of a PendingWrite.")
        return pending

    async def stored(self, store: SessionStore) -> list[Item] | None:
        """Return the items if the messages were stored, or None if they were not stored and can be appended now. Raises
        Conflict if the history has changed in another way, and StoreError."""
        session = await store.info(self.key)
        items = await store.latest(self.key, self.count + self.tail + _ROUND)
        return self.match(items, session.head if session else 0)

    def match(self, items: Sequence[Item], head: int) -> list[Item] | None:
        """Return the items of this write if they are among ``items``, the newest items of the current branch, or None
        if nothing was stored. ``head`` is the last sequence number of the session. Raises Conflict, as ``stored``
        does."""
        earlier = [item for item in items if item.seq <= self.expect_seq]
        batch = [item for item in items if item.seq > self.expect_seq][: self.count]
        if self.tail and _digest_items(earlier[-self.tail :]) != self.before:
            raise self._conflict()
        if head == self.expect_seq:
            return None
        seqs = [item.seq for item in batch]
        actual = _digest(serialization.encode(item.message) for item in batch)
        if seqs != list(range(self.expect_seq + 1, self.expect_seq + 1 + self.count)) or actual != self.batch:
            raise self._conflict()
        if batch and batch[-1].turn != self.turn:
            raise self._conflict()
        return batch

    def _conflict(self) -> Conflict:
        return Conflict(
            "The history has changed since this write was prepared.",
            hint="Read the session, and decide what is still to be appended.",
            details={"session": self.session, "turn": self.turn, "expect_seq": self.expect_seq},
        )


def _digest(texts: Iterable[str]) -> str:
    """Return a hash of the texts. The length of each text is hashed too, so that texts that are divided differently
    give different digests."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode()
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def _digest_items(items: Sequence[Item]) -> str:
    return _digest(f"{item.seq} {item.turn} {serialization.encode(item.message)}" for item in items)

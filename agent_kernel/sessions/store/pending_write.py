"""A write whose outcome may become unknown, told so that it can be looked up afterwards, by this process or another.

Nothing is guessed: a batch is there, or it is not and nothing else is in its place, or the history is another one.
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
"""Items before the batch that a checkpoint vouches for."""
_ROUND = 200
"""Items beside the batch that are read, so that one that begins with results comes with their calls."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """``count`` messages that are to become items ``expect_seq`` + 1 and on, the last of them of ``turn``. ``batch``
    and ``before`` are digests of them and of the ``tail`` items in front."""

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
        """Without ``before`` only the batch is vouched for: enough for who holds the lease of the turn. Raises
        InvalidRequest for what no store takes."""
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
        """Raises InvalidRequest for anything but what ``to_json`` gave."""
        try:
            pending = cls(**body)
            kinds = [type(value) for value in (pending.expect_seq, pending.count, pending.tail)]
        except TypeError as error:
            raise InvalidRequest(f"This is no pending write: {error}.") from error
        if kinds != [int] * 3 or not all(isinstance(text, str) for text in (pending.batch, pending.before)):
            raise InvalidRequest("This is no pending write.")
        return pending

    async def stored(self, store: SessionStore) -> list[Item] | None:
        """The items if they were stored, None if they were not and can be appended now. Raises Conflict when anything
        else is there, StoreError."""
        session = await store.info(self.key)
        items = await store.latest(self.key, self.count + self.tail + _ROUND)
        return self.found(items, session.head if session else 0)

    def found(self, items: Sequence[Item], head: int) -> list[Item] | None:
        """The same, of the newest items of the current branch and the head of the session."""
        earlier = [item for item in items if item.seq <= self.expect_seq]
        batch = [item for item in items if item.seq > self.expect_seq][: self.count]
        if self.tail and _digest_items(earlier[-self.tail :]) != self.before:
            raise self._changed()
        if head == self.expect_seq:
            return None
        seqs = [item.seq for item in batch]
        said = _digest(serialization.encode(item.message) for item in batch)
        if seqs != list(range(self.expect_seq + 1, self.expect_seq + 1 + self.count)) or said != self.batch:
            raise self._changed()
        if batch and batch[-1].turn != self.turn:
            raise self._changed()
        return batch

    def _changed(self) -> Conflict:
        return Conflict(
            "The history changed since this was to be written.",
            hint="Read the session, and decide what is still to be said.",
            details={"session": self.session, "turn": self.turn, "expect_seq": self.expect_seq},
        )


def _digest(texts: Iterable[str]) -> str:
    """Each text with its length, so that no two sequences read the same."""
    found = hashlib.sha256()
    for text in texts:
        data = text.encode()
        found.update(b"%d:" % len(data) + data)
    return found.hexdigest()


def _digest_items(items: Sequence[Item]) -> str:
    return _digest(f"{item.seq} {item.turn} {serialization.encode(item.message)}" for item in items)

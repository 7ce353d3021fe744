"""What a session store does with one branch, in plain dicts and lists: the other answer in test_model_based.py."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from agent_kernel.errors import Conflict, LeaseLost, SequenceConflict, SessionBusy, SessionNotFound, StoreError
from agent_kernel.events import TurnState
from agent_kernel.messages import Message, Usage
from agent_kernel.sessions import pairs, recovery, stored
from agent_kernel.sessions.model import Item, Owner, Session, SessionKey, Turn, valid_id

_T = TypeVar("_T")
Items: TypeAlias = list[Item]
"""Inside a class with a method ``list`` the type needs another name."""
Turns: TypeAlias = list[Turn]
Paths: TypeAlias = list[str]


@dataclass(slots=True)
class _Lease:
    turn: str
    owner: Owner
    heartbeat: float
    pending: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Kept:
    """Everything of one session; ``lease`` is there while a turn is open."""

    session: Session
    turns: dict[str, Turn] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    lease: _Lease | None = None


class PlainStore:
    """A SessionStore in this process, for one event loop. No method waits, so none can be cancelled half-way."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._sessions: dict[SessionKey, _Kept] = {}
        self._bindings: dict[tuple[str, str, str], str] = {}
        self._closed = False

    async def create(self, key: SessionKey, title: str = "") -> Session:
        stored.text(title, "title")
        if key not in self._all():
            now = self._clock()
            self._all()[key] = _Kept(Session(key, title, now, now, revision=1))
        return self._found(key).session

    async def info(self, key: SessionKey) -> Session | None:
        kept = self._all().get(key)
        return kept.session if kept else None

    async def list(self, namespace: str, limit: int | None = 50) -> list[Session]:
        valid_id(namespace, "namespace")
        stored.checked_limit(limit)
        newest_first = [kept.session for key, kept in reversed(self._all().items()) if key.namespace == namespace]
        return sorted(newest_first, key=lambda session: -session.updated)[:limit]

    async def rename(self, key: SessionKey, title: str) -> None:
        stored.text(title, "title")
        self._change(self._found(key), title=title)

    async def clear(self, key: SessionKey) -> None:
        kept = self._free(key)
        kept.turns, kept.items, kept.blobs = {}, [], {}
        self._change(kept, head=0, turns=0)

    async def delete(self, key: SessionKey) -> bool:
        if key not in self._all():
            return False
        self._free(key)
        del self._all()[key]
        mine = [place for place, session in self._bindings.items() if (place[0], session) == (key.namespace, key.id)]
        for place in mine:
            del self._bindings[place]
        return True

    async def open_turn(self, turn: Turn, owner: Owner) -> Turn:
        fresh = stored.checked(turn)
        kept = self._free(turn.key)
        if turn.id in kept.turns:
            raise Conflict(f"There is a turn {turn.id!r} already.", details={"turn": turn.id})
        opened = replace(fresh, ordinal=kept.session.turns + 1, since=kept.session.head)
        kept.turns[turn.id] = opened
        kept.lease = _Lease(turn.id, owner, self._clock())
        self._change(kept, turns=opened.ordinal)
        return opened

    async def append(self, turn: Turn, owner: Owner, messages: Sequence[Message], expect_seq: int) -> Items:
        kept, lease = self._leased(turn, owner)
        if kept is None or lease is None:
            raise LeaseLost("This turn is closed or another process's.", details={"turn": turn.id})
        head = kept.session.head
        if head != expect_seq:
            raise SequenceConflict(
                f"The session is at item {head}, not {expect_seq}.", hint="Read what is new.", details={"head": head}
            )
        waiting = pairs.unanswered(lease.pending, messages)
        carried = stored.media(messages, kept.blobs.__contains__)
        items = self._insert(kept, turn.id, messages)
        kept.blobs |= {digest: medium.data or b"" for digest, medium in carried.items() if digest not in kept.blobs}
        lease.pending, lease.heartbeat = waiting, self._clock()
        return items

    async def heartbeat(self, turn: Turn, owner: Owner) -> bool:
        _, lease = self._leased(turn, owner)
        if lease is not None:
            lease.heartbeat = self._clock()
        return lease is not None

    async def close_turn(
        self, turn: Turn, owner: Owner, state: TurnState, reason: str = "", usage: Usage | None = None
    ) -> bool:
        recovery.check_closing(state, reason)
        return self._close(turn, owner, state, reason, usage.to_json() if usage else {})

    async def recover(self) -> Turns:
        now = self._clock()
        leases = [(kept, kept.lease) for kept in self._all().values() if kept.lease is not None]
        lost = [(kept, lease) for kept, lease in leases if recovery.stale(lease.owner, lease.heartbeat, now)]
        for kept, lease in lost:
            self._close(kept.turns[lease.turn], lease.owner, "interrupted", recovery.REASON, {})
        return [kept.turns[lease.turn] for kept, lease in lost]

    async def latest(self, key: SessionKey, limit: int | None = None, *, failed: bool = True) -> Items:
        stored.checked_limit(limit)
        kept = self._all().get(key)
        if kept is None:
            return []
        seen = [item for item in kept.items if failed or kept.turns[item.turn].state != "failed"]
        return pairs.whole(_newest(seen, limit))

    async def turns(self, key: SessionKey, limit: int | None = None) -> Turns:
        stored.checked_limit(limit)
        kept = self._all().get(key)
        return _newest(list(kept.turns.values()), limit) if kept else []

    async def blob(self, key: SessionKey, digest: str) -> bytes | None:
        kept = self._all().get(key)
        return kept.blobs.get(digest) if kept else None

    async def bind(self, namespace: str, root: str, path: str, session: str) -> None:
        place = namespace, stored.path(root, "contents root"), stored.path(path)
        self._found(SessionKey(namespace, session))
        self._bindings[place] = session

    async def bound(self, namespace: str, root: str, path: str) -> str | None:
        self._all()
        return self._bindings.get((namespace, root, path))

    async def move(self, root: str, old: str, new: str) -> int:
        stored.path(old), stored.path(new)
        self._all()
        inside = [place for place in self._bindings if place[1] == root and f"{place[2]}/".startswith(f"{old}/")]
        moved = {(place[0], root, new + place[2][len(old) :]): self._bindings.pop(place) for place in inside}
        self._bindings |= moved
        return len(moved)

    async def paths(self, root: str, session: SessionKey) -> Paths:
        self._all()
        wanted = session.namespace, root, session.id
        return sorted(path for (namespace, base, path), id in self._bindings.items() if (namespace, base, id) == wanted)

    async def aclose(self) -> None:
        """Forgets everything; afterwards every method raises StoreError."""
        self._closed = True
        self._sessions.clear()
        self._bindings.clear()

    def _all(self) -> dict[SessionKey, _Kept]:
        if self._closed:
            raise StoreError("This session store is closed.")
        return self._sessions

    def _found(self, key: SessionKey) -> _Kept:
        kept = self._all().get(key)
        if kept is None:
            raise SessionNotFound(f"There is no session {key.id!r}.", details={"session": key.id})
        return kept

    def _free(self, key: SessionKey) -> _Kept:
        kept = self._found(key)
        if kept.lease is not None:
            raise SessionBusy(
                "Another turn of this session is running.",
                hint="Wait for it or stop it.",
                details={"turn": kept.lease.turn},
            )
        return kept

    def _leased(self, turn: Turn, owner: Owner) -> tuple[_Kept | None, _Lease | None]:
        kept = self._all().get(turn.key)
        lease = kept.lease if kept else None
        mine = lease is not None and (lease.turn, lease.owner.instance) == (turn.id, owner.instance)
        return (kept, lease) if mine else (kept, None)

    def _change(self, kept: _Kept, **fields: str | int) -> None:
        revision = kept.session.revision + 1
        kept.session = replace(kept.session, revision=revision, updated=self._clock(), **fields)  # type: ignore[arg-type]  # names and types are Session's

    def _insert(self, kept: _Kept, turn: str, messages: Iterable[Message]) -> Items:
        bodies = [json.loads(stored.encode(message)) for message in messages]
        start, now = kept.session.head + 1, self._clock()
        items = [Item(seq, turn, Message.from_json(body), now) for seq, body in enumerate(bodies, start)]
        if items:
            kept.items += items
            self._change(kept, head=items[-1].seq)
        return items

    def _close(self, turn: Turn, owner: Owner, state: TurnState, reason: str, usage: Mapping[str, float]) -> bool:
        kept, lease = self._leased(turn, owner)
        if kept is None or lease is None:
            return False
        self._insert(kept, turn.id, pairs.answers(lease.pending, reason))
        kept.turns[turn.id] = replace(
            kept.turns[turn.id], state=state, reason=reason, closed=self._clock(), usage=dict(usage)
        )
        kept.lease = None
        self._change(kept)
        return True


def _newest(values: Sequence[_T], limit: int | None) -> list[_T]:
    return list(values) if limit is None else list(values[len(values) - min(limit, len(values)) :])

"""A session store made of dicts and lists (a branch is a list of items), with which test_model_based.py compares the
real stores.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from agent_kernel.core.errors import (
    BranchNotFound,
    Conflict,
    InvalidRequest,
    LeaseLost,
    SequenceConflict,
    SessionBusy,
    SessionNotFound,
    StoreError,
    TurnNotFound,
)
from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Message, Usage
from agent_kernel.core.session import MAIN, Branch, Item, Owner, Session, SessionKey, Turn, check_id
from agent_kernel.sessions import call_pairs, serialization
from agent_kernel.sessions.store import sqlite

_T = TypeVar("_T")
Items: TypeAlias = list[Item]
"""An alias: inside a class with a method named ``list``, the built-in name is shadowed."""
Turns: TypeAlias = list[Turn]
Paths: TypeAlias = list[str]
Branches: TypeAlias = list[Branch]
Pairs: TypeAlias = list[tuple[str, str]]


@dataclass(slots=True)
class _Lease:
    turn: str
    owner: Owner
    heartbeat: float
    pending: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Line:
    """One branch: its items, and the turns that it shows."""

    parent: str
    created: float
    since: int = 0
    items: list[Item] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.items[-1].seq if self.items else 0


@dataclass(slots=True)
class _Kept:
    """All data of one session. ``lease`` exists while a turn is open; ``names`` are those of all branches that ever
    existed.
    """

    session: Session
    turns: dict[str, Turn] = field(default_factory=dict)
    lines: dict[str, _Line] = field(default_factory=dict)
    names: set[str] = field(default_factory=lambda: {MAIN})
    lease: _Lease | None = None

    @property
    def line(self) -> _Line:
        return self.lines[self.session.branch]

    @property
    def items(self) -> list[Item]:
        """Return the items of all branches."""
        return sorted({item.seq: item for line in self.lines.values() for item in line.items}.values(), key=_seq)

    def names_medium(self, digest: str) -> bool:
        return any(medium.hash == digest for item in self.items for medium in item.message.media)

    def cut(self, line: _Line, count: int) -> None:
        """Keep the first ``count`` items, and the turns that began before the last of them."""
        line.items = line.items[:count]
        line.turns = [id for id in line.turns if self.turns[id].since < line.end]
        self.forget()

    def forget(self) -> None:
        """Remove the turns that no branch shows."""
        shown = {id for line in self.lines.values() for id in line.turns}
        self.turns = {id: turn for id, turn in self.turns.items() if id in shown}

    def followed(self, line: _Line, turn: str) -> int:
        """Return the number of the item after which a turn of the branch began."""
        first = next((item.seq for item in line.items if item.turn == turn), self.turns[turn].since + 1)
        return max((item.seq for item in line.items if item.seq < first), default=0)


class PlainStore:
    """A SessionStore in this process, for one event loop. No method suspends, so no call can be cancelled halfway."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._sessions: dict[SessionKey, _Kept] = {}
        self._bindings: dict[tuple[str, str, str], str] = {}
        self._blobs: dict[str, bytes] = {}
        self._closed = False

    async def create(self, key: SessionKey, title: str = "") -> Session:
        serialization.text(title, "title")
        if key not in self._all():
            now = self._clock()
            self._all()[key] = _Kept(Session(key, title, now, now, revision=1), lines={MAIN: _Line("", now)})
        return self._found(key).session

    async def info(self, key: SessionKey) -> Session | None:
        kept = self._all().get(key)
        return kept.session if kept else None

    async def list(self, namespace: str, limit: int | None = 50) -> list[Session]:
        check_id(namespace, "namespace")
        serialization.validate_limit(limit)
        newest_first = [kept.session for key, kept in reversed(self._all().items()) if key.namespace == namespace]
        return sorted(newest_first, key=lambda session: -session.updated)[:limit]

    async def rename(self, key: SessionKey, title: str) -> None:
        serialization.text(title, "title")
        self._change(self._found(key), title=title)

    async def clear(self, key: SessionKey) -> None:
        kept = self._free(key)
        kept.turns, kept.lines = {}, {MAIN: _Line("", self._clock())}
        self._change(kept, head=0, turns=0, branch=MAIN)

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
        fresh = serialization.validate_turn(turn)
        kept = self._free(turn.key)
        if turn.id in kept.turns:
            raise Conflict(f"A turn {turn.id!r} exists already.", details={"turn": turn.id})
        opened = replace(fresh, ordinal=kept.session.turns + 1, since=kept.session.head)
        kept.turns[turn.id] = opened
        kept.line.turns.append(turn.id)
        kept.lease = _Lease(turn.id, owner, self._clock())
        self._change(kept, turns=opened.ordinal)
        return opened

    async def append(self, turn: Turn, owner: Owner, messages: Sequence[Message], expect_seq: int) -> Items:
        kept, lease = self._leased(turn, owner)
        if kept is None or lease is None:
            raise LeaseLost("The turn is closed or belongs to another process.", details={"turn": turn.id})
        head = kept.session.head
        if head != expect_seq:
            raise SequenceConflict(
                f"The session has changed: its last item is {head}, and the request expects {expect_seq}.",
                hint="Read the new items first.",
                details={"head": head},
            )
        waiting = call_pairs.pending_calls(lease.pending, messages)
        carried = serialization.collect_media(messages, kept.names_medium)
        items = self._insert(kept, turn.id, messages)
        self._blobs |= {digest: medium.data or b"" for digest, medium in carried.items()}
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
        sqlite.check_closing(state, reason)
        return self._close(turn, owner, state, reason, usage.to_json() if usage else {})

    async def recover(self) -> Turns:
        now = self._clock()
        leases = [(kept, kept.lease) for kept in self._all().values() if kept.lease is not None]
        lost = [(kept, lease) for kept, lease in leases if sqlite.is_stale(lease.owner, lease.heartbeat, now)]
        for kept, lease in lost:
            self._close(kept.turns[lease.turn], lease.owner, "interrupted", sqlite.REASON, {})
        return [kept.turns[lease.turn] for kept, lease in lost]

    async def latest(
        self, key: SessionKey, limit: int | None = None, *, failed: bool = True, branch: str | None = None
    ) -> Items:
        serialization.validate_limit(limit)
        kept, line = self._line(key, branch)
        seen = [item for item in line.items if failed or kept.turns[item.turn].state != "failed"] if kept else []
        return call_pairs.drop_leading_results(_newest(seen, limit))

    async def turns(
        self, key: SessionKey, limit: int | None = None, *, branch: str | None = None, before: str = ""
    ) -> Turns:
        serialization.validate_limit(limit)
        kept, line = self._line(key, branch)
        ids = list(line.turns) if kept else []
        if before and before not in ids:
            raise TurnNotFound(f"There is no turn {before!r} on this branch.", details={"turn": before})
        ids = ids[: ids.index(before)] if before else ids
        return _newest([kept.turns[id] for id in ids], limit) if kept else []

    async def everything(self, key: SessionKey) -> tuple[Turns, Items]:
        kept = self._all().get(key)
        return (sorted(kept.turns.values(), key=lambda turn: turn.ordinal), kept.items) if kept else ([], [])

    async def blob(self, key: SessionKey, digest: str) -> bytes | None:
        kept = self._all().get(key)
        return self._blobs[digest] if kept and kept.names_medium(digest) else None

    async def pop(self, key: SessionKey) -> Items:
        kept = self._free(key)
        items = kept.line.items
        if not items:
            return []
        at = max(index for index, item in enumerate(items) if item.message.role != "tool")
        taken = items[at:]
        self._cut(kept, at)
        return taken

    async def rewind(self, key: SessionKey, tail: Sequence[Item]) -> bool:
        kept = self._free(key)
        at = len(kept.line.items) - len(tail)
        if at < 0 or kept.line.items[at:] != list(tail):
            return False
        if tail and tail[0].message.role == "tool":
            raise InvalidRequest("A tool call would be left without its results.", hint="Remove its message too.")
        if tail:
            self._cut(kept, at)
        return True

    async def branches(self, key: SessionKey) -> Branches:
        kept = self._all().get(key)
        return [self._branch(kept, name) for name in kept.lines] if kept else []

    async def branch(self, key: SessionKey, *, before: str | None = None, name: str = "") -> Branch:
        kept = self._free(key)
        number = next(n for n in range(len(kept.names) + 1, 10_000) if f"branch-{n}" not in kept.names)
        made = name or f"branch-{number}"
        if made in kept.names:
            raise Conflict(
                f"The name {made!r} is or was used by a branch.",
                hint="The name of a dropped branch cannot be used again.",
                details={"branch": made},
            )
        old = kept.line
        if before is not None and before not in old.turns:
            raise TurnNotFound(f"There is no turn {before!r} on this branch.", details={"turn": before})
        until = old.end if before is None else kept.turns[before].since
        line = _Line(kept.session.branch, self._clock(), items=[item for item in old.items if item.seq <= until])
        line.turns = [id for id in old.turns if kept.turns[id].since < line.end]
        line.since = line.end
        kept.lines[made] = line
        kept.names.add(made)
        return await self.switch(key, made)

    async def switch(self, key: SessionKey, name: str) -> Branch:
        kept = self._named(key, name)
        self._free(key)
        self._change(kept, branch=name)
        return self._branch(kept, name)

    async def drop_branch(self, key: SessionKey, name: str) -> None:
        kept = self._named(key, name)
        self._free(key)
        if name == kept.session.branch:
            raise Conflict("The current branch cannot be dropped.", hint="Switch to another one first.")
        del kept.lines[name]
        kept.forget()
        self._change(kept)

    async def siblings(self, key: SessionKey, turn: str) -> Pairs:
        kept = self._all().get(key)
        if kept is None or turn not in kept.turns:
            return []
        behind = {kept.followed(line, turn) for line in kept.lines.values() if turn in line.turns}
        found: dict[str, str] = {}
        for name, line in kept.lines.items():
            said = {item.turn for item in line.items} | {turn}
            for id in line.turns:
                if id in said and kept.followed(line, id) in behind:
                    found.setdefault(id, name)
        return sorted(found.items(), key=lambda version: kept.turns[version[0]].ordinal)

    async def fork(self, key: SessionKey, target: SessionKey, turns: int | None = None) -> Session:
        serialization.validate_limit(turns, "number of turns")
        kept = self._found(key)
        if target in self._all():
            raise Conflict(f"A session {target.id!r} exists already.", details={"session": target.id})
        chosen = [id for id in kept.line.turns if kept.turns[id].state != "open"]
        answered = [id for id in chosen if kept.turns[id].state == "committed"]
        if turns is not None and turns <= len(answered):
            chosen = chosen[: chosen.index(answered[turns - 1]) + 1] if turns else []
        await self.create(target, kept.session.title)
        copy = self._found(target)
        copy.turns = {id: replace(kept.turns[id], key=target) for id in chosen}
        copy.line.turns = chosen
        copy.line.items = [item for item in kept.line.items if item.turn in chosen]
        head = max((copy.line.end, *(turn.since for turn in copy.turns.values())))
        self._change(copy, head=head, turns=copy.turns[chosen[-1]].ordinal if chosen else 0)
        return copy.session

    async def bind(self, namespace: str, root: str, path: str, session: str) -> None:
        place = namespace, serialization.path(root, "contents root"), serialization.path(path)
        self._found(SessionKey(namespace, session))
        self._bindings[place] = session

    async def bound(self, namespace: str, root: str, path: str) -> str | None:
        self._all()
        return self._bindings.get((namespace, root, path))

    async def move(self, root: str, old: str, new: str) -> int:
        serialization.path(old), serialization.path(new)
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
        """Delete everything; afterwards every method raises StoreError."""
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

    def _named(self, key: SessionKey, name: str) -> _Kept:
        kept = self._found(key)
        if name not in kept.lines:
            raise BranchNotFound(f"There is no branch {name!r}.", details={"branch": name})
        return kept

    def _line(self, key: SessionKey, branch: str | None) -> tuple[_Kept | None, _Line]:
        kept = self._all().get(key)
        line = kept.lines.get(branch or kept.session.branch) if kept else None
        return (kept, line) if line else (None, _Line("", 0.0))

    def _branch(self, kept: _Kept, name: str) -> Branch:
        line, current = kept.lines[name], name == kept.session.branch
        return Branch(name, line.parent, line.since, line.end, len(line.turns), line.created, current)

    def _cut(self, kept: _Kept, count: int) -> None:
        """Cut the branch. The model does not compute what ``since`` of a branch becomes, which depends on other
        branches.
        """
        kept.cut(kept.line, count)
        self._change(kept)

    def _leased(self, turn: Turn, owner: Owner) -> tuple[_Kept | None, _Lease | None]:
        kept = self._all().get(turn.key)
        lease = kept.lease if kept else None
        mine = lease is not None and (lease.turn, lease.owner.instance) == (turn.id, owner.instance)
        return (kept, lease) if mine else (kept, None)

    def _change(self, kept: _Kept, **fields: str | int) -> None:
        revision = kept.session.revision + 1
        kept.session = replace(kept.session, revision=revision, updated=self._clock(), **fields)  # type: ignore[arg-type]  # names and types are Session's

    def _insert(self, kept: _Kept, turn: str, messages: Iterable[Message]) -> Items:
        bodies = [json.loads(serialization.encode(message)) for message in messages]
        start, now = kept.session.head + 1, self._clock()
        items = [Item(seq, turn, Message.from_json(body), now) for seq, body in enumerate(bodies, start)]
        if items:
            kept.line.items += items
            self._change(kept, head=items[-1].seq)
        return items

    def _close(self, turn: Turn, owner: Owner, state: TurnState, reason: str, usage: Mapping[str, float]) -> bool:
        kept, lease = self._leased(turn, owner)
        if kept is None or lease is None:
            return False
        self._insert(kept, turn.id, call_pairs.interrupted_results(lease.pending, reason))
        kept.turns[turn.id] = replace(
            kept.turns[turn.id], state=state, reason=reason, closed=self._clock(), usage=dict(usage)
        )
        kept.lease = None
        self._change(kept)
        return True


def _seq(item: Item) -> int:
    return item.seq


def _newest(values: Sequence[_T], limit: int | None) -> list[_T]:
    return list(values) if limit is None else list(values[len(values) - min(limit, len(values)) :])

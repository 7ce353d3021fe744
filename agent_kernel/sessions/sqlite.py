"""The session store of one machine: a SQLite file that several processes of one user may share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from agent_kernel.events import TurnState
from agent_kernel.messages import Message, Usage
from agent_kernel.sessions import recovery, stored, tables
from agent_kernel.sessions.database import Database
from agent_kernel.sessions.model import Item, Owner, Session, SessionKey, Turn, valid_id

Items: TypeAlias = list[Item]
"""Inside a class with a method ``list`` the type needs another name."""
Turns: TypeAlias = list[Turn]
Paths: TypeAlias = list[str]


class SqliteStore:
    """A SessionStore in the file ``path`` (made with mode 0600 at first use, its directory with 0700).

    Every method is one transaction on the store's own thread. Cancelling the caller never leaves the outcome unknown:
    CancelledError comes after the operation has ended or was taken back before it began. ``clock`` gives seconds since
    the epoch. Raises StoreFull, StoreCorrupt or StoreError beside what the protocol names; after any of them the store
    can be used again.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path).absolute()
        self._clock = clock
        self._database = Database(self.path)

    async def create(self, key: SessionKey, title: str = "") -> Session:
        stored.text(title, "title")
        return await self._database.write(lambda db: tables.create(db, key, title, self._clock()))

    async def info(self, key: SessionKey) -> Session | None:
        return await self._database.read(lambda db: tables.info(db, key))

    async def list(self, namespace: str, limit: int | None = 50) -> list[Session]:
        valid_id(namespace, "namespace")
        stored.checked_limit(limit)
        return await self._database.read(lambda db: tables.listed(db, namespace, limit))

    async def rename(self, key: SessionKey, title: str) -> None:
        stored.text(title, "title")
        await self._database.write(lambda db: tables.rename(db, key, title, self._clock()))

    async def clear(self, key: SessionKey) -> None:
        await self._database.write(lambda db: tables.clear(db, key, self._clock()))

    async def delete(self, key: SessionKey) -> bool:
        return await self._database.write(lambda db: tables.delete(db, key))

    async def open_turn(self, turn: Turn, owner: Owner) -> Turn:
        fresh = stored.checked(turn)
        return await self._database.write(lambda db: tables.open_turn(db, fresh, owner, self._clock()))

    async def append(self, turn: Turn, owner: Owner, messages: Sequence[Message], expect_seq: int) -> Items:
        batch = tuple(messages)
        return await self._database.write(
            lambda db: tables.append(db, turn, owner, batch, expect_seq=expect_seq, now=self._clock())
        )

    async def heartbeat(self, turn: Turn, owner: Owner) -> bool:
        return await self._database.write(lambda db: tables.heartbeat(db, turn, owner, self._clock()))

    async def close_turn(
        self, turn: Turn, owner: Owner, state: TurnState, reason: str = "", usage: Usage | None = None
    ) -> bool:
        recovery.check_closing(state, reason)
        cost = usage.to_json() if usage else {}
        return await self._database.write(
            lambda db: tables.close_turn(db, turn, owner, state=state, reason=reason, usage=cost, now=self._clock())
        )

    async def recover(self) -> Turns:
        now = self._clock()
        leases = await self._database.read(
            lambda db: tables.abandoned(db, lambda owner, seen: recovery.stale(owner, seen, now))
        )
        closed = [await self._take_over(*lease) for lease in leases]
        return [turn for turn in closed if turn is not None]

    async def _take_over(self, turn: Turn, owner: Owner, seen: float) -> Turn | None:
        return await self._database.write(
            lambda db: tables.take_over(db, turn, owner, seen, reason=recovery.REASON, now=self._clock())
        )

    async def latest(self, key: SessionKey, limit: int | None = None, *, failed: bool = True) -> Items:
        stored.checked_limit(limit)
        return await self._database.read(lambda db: tables.latest(db, key, limit, failed=failed))

    async def turns(self, key: SessionKey, limit: int | None = None) -> Turns:
        stored.checked_limit(limit)
        return await self._database.read(lambda db: tables.turns(db, key, limit))

    async def blob(self, key: SessionKey, digest: str) -> bytes | None:
        return await self._database.read(lambda db: tables.blob(db, key, digest))

    async def bind(self, namespace: str, root: str, path: str, session: str) -> None:
        key = SessionKey(namespace, session)
        where = stored.path(root, "contents root"), stored.path(path)
        await self._database.write(lambda db: tables.bind(db, key, *where))

    async def bound(self, namespace: str, root: str, path: str) -> str | None:
        return await self._database.read(lambda db: tables.bound(db, namespace, root, path))

    async def move(self, root: str, old: str, new: str) -> int:
        stored.path(old), stored.path(new)
        return await self._database.write(lambda db: tables.move(db, root, old, new))

    async def paths(self, root: str, session: SessionKey) -> Paths:
        return await self._database.read(lambda db: tables.paths(db, root, session))

    async def aclose(self) -> None:
        """Waits for what was begun and closes the file; idempotent. Afterwards every method raises StoreError."""
        await self._database.aclose()

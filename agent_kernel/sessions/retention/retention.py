"""Removes sessions by age, by number, or at a user's request, and runs the callbacks before each removal."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias
from weakref import WeakValueDictionary

from agent_kernel.core.errors import Conflict, StoreError
from agent_kernel.core.seams.session_store import ExpiringStore
from agent_kernel.core.session import Session, SessionKey
from agent_kernel.core.shielded_await import cancel_tasks
from agent_kernel.sessions.retention.limits import RetentionLimits

log = logging.getLogger(__name__)
MIN_SWEEP_S = 1.0
SWEEP_S = 60.0
"""Seconds between two sweeps if only ``max_sessions`` is set. Creating a session already removes a session beyond the
limit, so a sweep finds few sessions to remove."""
JITTER = 0.1
"""Fraction by which the time between sweeps varies, so that servers that share a file do not sweep at the same time."""
CALLBACK_S = 60.0
"""Seconds after which a callback is abandoned and the removal continues; also the limit for all callbacks at
shutdown."""

OnExpire: TypeAlias = Callable[[Session], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class DueSession:
    """A session that the next sweep removes. ``why`` is the limit that it exceeds: ttl or max_sessions."""

    session: Session
    why: str


class Retention:
    """Removes sessions of one store that exceed ``limits``; each server process has one instance.

    A session counts as used when a turn runs, when it changes, or when a client reads its history (``touch``). Listing,
    searching or looking up a session, and heartbeats, do not count. A session with an open turn is never removed.

    Each callback in ``on_expire`` is awaited before a session is removed, while its history can still be read, and at
    shutdown for every session that this process worked with. Exceptions of a callback are logged. A callback must not
    change the session: a session that changes during its callbacks is not removed, and the callbacks run again at the
    next attempt. ``clock`` must be the clock of the store, in seconds since the epoch.
    """

    def __init__(
        self,
        store: ExpiringStore,
        limits: RetentionLimits,
        on_expire: Iterable[OnExpire] = (),
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.limits = limits
        self._store = store
        self._on_expire = tuple(on_expire)
        self._clock = clock
        self._touched: dict[SessionKey, float] = {}
        self._used_here: set[SessionKey] = set()
        self._removals: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()
        self._creation_lock = asyncio.Lock()
        self._sweeper: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------------------------ recording the use of sessions

    async def is_expired(self, session: Session) -> bool:
        return self._too_old(session) and not await self._has_open_turn(session.key)

    def apply_touch(self, session: Session) -> Session:
        """Return the session with the time of its last use. Uses that this process has recorded and not yet written to
        the store count too."""
        touched = self._touched.get(session.key, 0.0)
        return replace(session, accessed=touched) if touched > session.accessed else session

    def note_work(self, key: SessionKey) -> None:
        """Record that this server worked with the session, so that the callbacks run for it at shutdown."""
        if self._on_expire:
            self._used_here.add(key)

    async def touch(self, session: Session) -> None:
        """Record that a client read the history. The time is written at once if another server might otherwise remove
        the session soon. In all other cases it is written with the next sweep, so that many reads cause one write."""
        self._touched[session.key] = self._clock()
        if not self.limits.ttl or self._clock() - session.accessed > self.limits.ttl / 2:
            await self._write_touch(session.key)

    async def write_touches(self) -> None:
        for key in list(self._touched):
            await self._write_touch(key)

    async def _write_touch(self, key: SessionKey) -> None:
        if key in self._touched:
            await self._store.touch(key)
            self._touched.pop(key, None)

    def _too_old(self, session: Session) -> bool:
        used = max(session.accessed, self._touched.get(session.key, 0.0))
        return bool(self.limits.ttl) and self._clock() - used >= self.limits.ttl

    async def _has_open_turn(self, key: SessionKey) -> bool:
        newest = await self._store.turns(key, 1)
        return bool(newest) and newest[-1].state == "open"

    # ------------------------------------------------------------------------------------------- removal

    @asynccontextmanager
    async def room_for(self, key: SessionKey) -> AsyncIterator[None]:
        """Make room for a session that the ``async with`` block creates. An expired session with this id is removed; if
        the namespace is full, the longest unused session is removed.

        The limit may be exceeded until the next sweep if all sessions have running turns, or if several processes
        create sessions at once.
        """
        session = await self._store.info(key)
        if session is not None and not await self.is_expired(session):
            yield
            return
        async with self._creation_lock:
            if session is not None:
                await self.remove(session)
            elif self.limits.max_sessions and await self._store.info(key) is None:
                for longest_unused in await self._excess(self.limits.max_sessions - 1, key.namespace):
                    await self.remove(longest_unused)
            yield

    async def due(self) -> list[DueSession]:
        """Return the sessions that a sweep would remove now."""
        await self.write_touches()
        limits = self.limits
        old = await self._store.idle(self._clock() - limits.ttl) if limits.ttl else []
        too_many = await self._store.excess(limits.max_sessions) if limits.max_sessions else []
        keys = {session.key for session in old}
        return [DueSession(session, "ttl") for session in old] + [
            DueSession(session, "max_sessions") for session in too_many if session.key not in keys
        ]

    async def sweep(self) -> list[DueSession]:
        """Remove the sessions that are due, and return those that were removed. A session that was used in the meantime
        stays."""
        return [going for going in await self.due() if await self.remove(going.session)]

    async def remove(self, session: Session) -> bool:
        """Remove a session and return True. Returns False if it was used or changed after ``session`` was read, has an
        open turn, or no longer exists."""
        async with self._removal_lock(session.key):
            now = await self._store.info(session.key)
            if now is None or now.revision != session.revision or now.accessed > session.accessed:
                return False
            if session.key in self._touched or await self._has_open_turn(session.key):
                return False
            await self._call_on_expire(now)
            try:
                return self._forget(session.key, await self._store.delete(session.key, now.revision))
            except Conflict:  # a turn was opened or the session changed: it is in use
                return False

    async def delete(self, key: SessionKey, revision: int | None) -> bool:
        """Delete a session as the store's ``delete`` does, after the callbacks. The callbacks do not run for a session
        that does not exist or cannot be deleted."""
        async with self._removal_lock(key):
            session = await self._store.info(key)
            if session is not None and revision in (None, session.revision) and not await self._has_open_turn(key):
                existed = not self._too_old(session)
                await self._call_on_expire(session)
                return self._forget(key, await self._store.delete(key, revision)) and existed
            return await self._store.delete(key, revision)

    async def _excess(self, cap: int, namespace: str) -> list[Session]:
        sessions = await self._store.excess(cap, namespace)
        if any(session.key in self._touched for session in sessions):
            await self.write_touches()
            sessions = await self._store.excess(cap, namespace)
        return sessions

    @asynccontextmanager
    async def _removal_lock(self, key: SessionKey) -> AsyncIterator[None]:
        lock = self._removals.setdefault(key, asyncio.Lock())
        async with lock:
            yield

    def _forget(self, key: SessionKey, deleted: bool) -> bool:
        self._touched.pop(key, None)
        self._used_here.discard(key)
        return deleted

    async def _call_on_expire(self, session: Session) -> None:
        for on_expire in self._on_expire:
            try:
                await asyncio.wait_for(on_expire(session), CALLBACK_S)
            except Exception as error:  # noqa: BLE001  a failing callback must not prevent the removal
                log.error(
                    "a callback that runs before session %s is deleted failed: %s", session.key.id, type(error).__name__
                )

    # ------------------------------------------------------------------------------------------- start and shutdown

    def start(self) -> None:
        """Start the background task that removes sessions that are due, every quarter of the ttl, but at most once
        per second."""
        if self._sweeper is None and (self.limits.ttl or self.limits.max_sessions):
            self._sweeper = asyncio.create_task(self._keep_sweeping(), name="session retention")

    async def aclose(self) -> None:
        """Stop sweeping, and run the callbacks for the sessions that this server worked with. These sessions stay
        stored."""
        await cancel_tasks(self._sweeper)
        try:
            await self.write_touches()
            async with asyncio.timeout(CALLBACK_S):
                for key in sorted(self._used_here, key=lambda key: (key.namespace, key.id)) if self._on_expire else ():
                    session = await self._store.info(key)
                    if session is not None:
                        await self._call_on_expire(session)
        except (StoreError, TimeoutError) as error:
            log.warning("not every on_expire callback ran at shutdown: %s", f"{type(error).__name__} {error}".strip())
        self._used_here.clear()

    async def _keep_sweeping(self) -> None:
        every = max(MIN_SWEEP_S, self.limits.ttl / 4) if self.limits.ttl else SWEEP_S
        while True:
            await asyncio.sleep(every * random.uniform(1 - JITTER, 1))
            try:
                gone = await self.sweep()
            except StoreError as error:
                log.warning("sessions that are due could not be removed: %s", error)
                continue
            for going in gone:
                log.info("session %s was removed: %s", going.session.key.id, going.why)

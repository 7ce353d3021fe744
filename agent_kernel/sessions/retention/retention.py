"""Which sessions go, when, and who is told before: by age, by number, by a person, at the end of the server."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias
from weakref import WeakValueDictionary

from agent_kernel.core.errors import Conflict, StoreError
from agent_kernel.core.seams.session_store import RetentionQueries
from agent_kernel.core.session import Session, SessionKey, Turn
from agent_kernel.sessions.retention.limits import Limits

log = logging.getLogger(__name__)
MIN_SWEEP_S = 1.0
SWEEP_S = 60.0
"""Between two sweeps where only ``max_sessions`` is set: a new session makes its own room, so little is left to do."""
JITTER = 0.1
"""Share of the time between two sweeps by which they vary, so that servers on one file do not meet."""
CALLBACK_S = 60.0
"""A callback is given up after so many seconds, and the removal goes on; so are all of them together at the end."""

OnExpire: TypeAlias = Callable[[Session], Awaitable[None]]


class Retained(RetentionQueries, Protocol):
    """What is asked of a store here."""

    async def info(self, key: SessionKey) -> Session | None: ...

    async def turns(self, key: SessionKey, limit: int | None = None, *, branch: str | None = None) -> list[Turn]: ...

    async def touch(self, key: SessionKey) -> None: ...

    async def delete(self, key: SessionKey, revision: int | None = None) -> bool: ...


@dataclass(frozen=True, slots=True)
class Going:
    """A session that is to go, and ``why``: ttl or max_sessions."""

    session: Session
    why: str


class Retention:
    """Of one store, by one process.

    A session is used by its turns, by every change, and by ``touch`` (a client read its history); not by being listed,
    searched or looked up, nor by heartbeats. One with an open turn is in use. ``on_expire`` is awaited with the
    session while its history can still be read, once for each removal, and at the end of the server for every session
    that it worked with; what it raises is logged. It must not change the session: one that changed meanwhile stays,
    and is told again when it goes. ``clock`` is the store's.
    """

    def __init__(
        self,
        store: Retained,
        limits: Limits,
        on_expire: Iterable[OnExpire] = (),
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.limits = limits
        self._store = store
        self._on_expire = tuple(on_expire)
        self._clock = clock
        self._touched: dict[SessionKey, float] = {}
        self._worked: set[SessionKey] = set()
        self._removals: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()
        self._making = asyncio.Lock()
        self._sweeper: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------------------------------- what is used

    async def expired(self, session: Session) -> bool:
        return self._too_old(session) and not await self._runs(session.key)

    def as_used(self, session: Session) -> Session:
        """With the touch that is not written yet."""
        touched = self._touched.get(session.key, 0.0)
        return replace(session, accessed=touched) if touched > session.accessed else session

    def worked(self, key: SessionKey) -> None:
        """The end of this server is that session's too."""
        if self._on_expire:
            self._worked.add(key)

    async def touch(self, session: Session) -> None:
        """Somebody read the history. Written at once only where another server could soon let the session go; else
        with the next sweep, so that reading it again and again writes once."""
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

    async def _runs(self, key: SessionKey) -> bool:
        newest = await self._store.turns(key, 1)
        return bool(newest) and newest[-1].state == "open"

    # ------------------------------------------------------------------------------------------- what goes

    @asynccontextmanager
    async def room_for(self, key: SessionKey) -> AsyncIterator[None]:
        """Inside it the session may be made: one of that id that is too old is gone, and in a full namespace the one
        that was used longest ago. Where all have a turn that runs, and between processes, there may be more sessions
        than the limit until the next sweep."""
        session = await self._store.info(key)
        if session is not None and not await self.expired(session):
            yield
            return
        async with self._making:
            if session is not None:
                await self.remove(session)
            elif self.limits.max_sessions and await self._store.info(key) is None:
                for longest_unused in await self._excess(self.limits.max_sessions - 1, key.namespace):
                    await self.remove(longest_unused)
            yield

    async def due(self) -> list[Going]:
        """What a sweep would remove now."""
        await self.write_touches()
        limits = self.limits
        old = await self._store.idle(self._clock() - limits.ttl) if limits.ttl else []
        too_many = await self._store.excess(limits.max_sessions) if limits.max_sessions else []
        keys = {session.key for session in old}
        return [Going(session, "ttl") for session in old] + [
            Going(session, "max_sessions") for session in too_many if session.key not in keys
        ]

    async def sweep(self) -> list[Going]:
        """Removes what is due; returns what went. A session that was used meanwhile stays."""
        return [going for going in await self.due() if await self.remove(going.session)]

    async def remove(self, session: Session) -> bool:
        """False if it was used or changed since it was read, or is gone already."""
        async with self._removing(session.key):
            now = await self._store.info(session.key)
            if now is None or now.revision != session.revision or now.accessed > session.accessed:
                return False
            if session.key in self._touched or await self._runs(session.key):
                return False
            await self._tell(now)
            try:
                return self._gone(session.key, await self._store.delete(session.key, now.revision))
            except Conflict:  # a turn began, or it was changed: it is in use
                return False

    async def delete(self, key: SessionKey, revision: int | None) -> bool:
        """As the store's, with the callbacks before; of a session that is not there, or may not go, nobody is told."""
        async with self._removing(key):
            session = await self._store.info(key)
            if session is not None and revision in (None, session.revision) and not await self._runs(key):
                existed = not self._too_old(session)
                await self._tell(session)
                return self._gone(key, await self._store.delete(key, revision)) and existed
            return await self._store.delete(key, revision)

    async def _excess(self, cap: int, namespace: str) -> list[Session]:
        found = await self._store.excess(cap, namespace)
        if any(session.key in self._touched for session in found):
            await self.write_touches()
            found = await self._store.excess(cap, namespace)
        return found

    @asynccontextmanager
    async def _removing(self, key: SessionKey) -> AsyncIterator[None]:
        lock = self._removals.setdefault(key, asyncio.Lock())
        async with lock:
            yield

    def _gone(self, key: SessionKey, deleted: bool) -> bool:
        self._touched.pop(key, None)
        self._worked.discard(key)
        return deleted

    async def _tell(self, session: Session) -> None:
        for on_expire in self._on_expire:
            try:
                await asyncio.wait_for(on_expire(session), CALLBACK_S)
            except Exception as error:  # noqa: BLE001  whatever a callback does, what is to go goes
                log.error("a callback failed before session %s went: %s", session.key.id, type(error).__name__)

    # ------------------------------------------------------------------------------------------- from start to end

    def start(self) -> None:
        """Sweeps every quarter of the ttl, and never more than once a second."""
        if self._sweeper is None and (self.limits.ttl or self.limits.max_sessions):
            self._sweeper = asyncio.create_task(self._keep_sweeping(), name="session retention")

    async def aclose(self) -> None:
        """Ends the sweeps and tells of the sessions that this server worked with; they stay stored."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        try:
            await self.write_touches()
            async with asyncio.timeout(CALLBACK_S):
                for key in sorted(self._worked, key=lambda key: (key.namespace, key.id)) if self._on_expire else ():
                    session = await self._store.info(key)
                    if session is not None:
                        await self._tell(session)
        except (StoreError, TimeoutError) as error:
            log.warning("not every session could be told of the end: %s", f"{type(error).__name__} {error}".strip())
        self._worked.clear()

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

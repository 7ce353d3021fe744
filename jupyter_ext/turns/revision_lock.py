"""Changes of a session, one at a time, each of the revision that its client has seen: two windows do not overwrite
each other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from weakref import WeakValueDictionary

from agent_kernel.core.errors import Conflict
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey


class Changes:
    """Of this server. Another server on the same store may still come in between; what it changes is then kept by the
    store's own rules, and the last one counts. ``told`` hears of each session that was changed here, and in what."""

    def __init__(
        self, store: SessionStore, told: Callable[[SessionKey, str], None] = lambda session, what: None
    ) -> None:
        self._store = store
        self._told = told
        self._locks: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def of(self, key: SessionKey, revision: int | None, what: str) -> AsyncIterator[None]:
        """``revision``: what the client has seen; None: whatever there is. ``what`` is told when it is done (of
        ``news.py``). Raises Conflict for another revision."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            session = await self._store.info(key) if revision is not None else None
            if session is not None and session.revision != revision:
                raise Conflict(
                    "The session has changed since you have seen it.",
                    hint="Read it again.",
                    details={"revision": session.revision},
                )
            yield
        self._told(key, what)

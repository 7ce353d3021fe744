"""Serializes the changes of a session and checks the revision that the client has seen, so that two windows do not
overwrite each other's changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from weakref import WeakValueDictionary

from agent_kernel.core.errors import Conflict
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey


class RevisionLock:
    """The locks of this server, one for each session. Another server on the same store does not see these locks and
    can change the session at the same time; the store's own rules then apply and the last write wins. ``on_change`` is
    called with the session and the kind of change after each change."""

    def __init__(
        self, store: SessionStore, on_change: Callable[[SessionKey, str], None] = lambda session, what: None
    ) -> None:
        self._store = store
        self._on_change = on_change
        self._locks: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def change(self, key: SessionKey, revision: int | None, kind: str) -> AsyncIterator[None]:
        """Hold the session's lock during a change. ``revision`` is the revision that the client has seen; None skips
        the check. ``kind`` is the kind of change for ``Notifications.on_session_changed``. Raises Conflict if the
        session now has another revision."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            session = await self._store.info(key) if revision is not None else None
            if session is not None and session.revision != revision:
                raise Conflict(
                    "The session has changed since you read it.",
                    hint="Read the session again, and repeat the change.",
                    details={"revision": session.revision},
                )
            yield
        self._on_change(key, kind)

"""Creates in-memory sessions for dialect requests that name no session. These sessions are never listed, and unused
ones are deleted.

A client of a dialect sends the whole conversation with every request. The server finds the session by comparing that
text with its sessions, so that the tool calls and the state of earlier turns are available again. A session is kept for
IDLE_S seconds after its last turn, and at most MOST sessions are kept.
"""

from __future__ import annotations

import asyncio
import logging
import time

from agent_kernel.core.errors import AgentKernelError, SessionBusy
from agent_kernel.core.session import SessionKey, new_id
from agent_kernel.sessions.store.private_store import PREFIX
from jupyter_ext.notebooks.private_sessions import PrivateSessions

log = logging.getLogger(__name__)
IDLE_S = 30 * 60.0
MOST = 128
"""Maximum number of these sessions. mistral.rs has the same default."""
SWEEP_S = 5.0
"""Seconds between two sweeps. In between there may be more than MOST sessions, with all of their pictures in memory."""
NAMED = f"{PREFIX}call_"


def is_ephemeral(session: str) -> bool:
    return session.startswith(NAMED)


class EphemeralSessions:
    """Creates in-memory sessions and deletes them when they are unused.

    ``close`` stops the periodic sweep. The sessions themselves live in the in-memory store and end with it.
    """

    def __init__(self, private: PrivateSessions) -> None:
        self._private = private
        self._used: dict[SessionKey, float] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def new_key(self, namespace: str) -> SessionKey:
        key = SessionKey(namespace, NAMED + new_id("session"))
        self._private.add(key)
        return key

    def mark_used(self, key: SessionKey) -> None:
        """Record that the session was used now; this restarts its idle time."""
        self._used.pop(key, None)
        self._used[key] = time.monotonic()
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._keep_sweeping(), name="sessions of calls")

    async def forget(self, key: SessionKey) -> None:
        self._used.pop(key, None)
        try:
            await self._private.forget(key)
        except SessionBusy:
            self.mark_used(key)
        except AgentKernelError as error:
            log.warning("an in-memory session could not be deleted: %s", error)

    async def sweep(self) -> None:
        """Delete the sessions that were idle for too long, then the oldest ones above the maximum number."""
        now = time.monotonic()
        old = [key for key, used in self._used.items() if now - used > IDLE_S]
        excess = list(self._used)[: max(0, len(self._used) - MOST)]
        for key in dict.fromkeys((*old, *excess)):
            await self.forget(key)

    def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.sweep()

"""Sessions of calls that name none: in memory, in no list, gone by themselves.

A conversation with the agent may go on: its client sends it whole with every request, and is found by what it says, so
that its tools' state and traffic are there again. It is kept for IDLE_S after its last turn, MOST of them.
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
"""As in mistral.rs."""
SWEEP_S = 60.0
NAMED = f"{PREFIX}call_"


def is_ephemeral(session: str) -> bool:
    return session.startswith(NAMED)


class Ephemeral:
    """``close`` ends the sweeping; the sessions go with the store, which is in memory."""

    def __init__(self, private: PrivateSessions, *, idle_s: float = IDLE_S, most: int = MOST) -> None:
        self._private = private
        self._idle_s = idle_s
        self._most = most
        self._used: dict[SessionKey, float] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def new(self, namespace: str) -> SessionKey:
        key = SessionKey(namespace, NAMED + new_id("session"))
        self._private.add(key)
        return key

    def knows(self, key: SessionKey) -> bool:
        """It was used before."""
        return key in self._used

    def keep(self, key: SessionKey) -> None:
        """It was used, and may be again."""
        self._used.pop(key, None)
        self._used[key] = time.monotonic()
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._keep_sweeping(), name="sessions of calls")

    async def forget(self, key: SessionKey) -> None:
        self._used.pop(key, None)
        try:
            await self._private.forget(key)
        except SessionBusy:
            self.keep(key)
        except AgentKernelError as error:
            log.warning("a session of a call could not be forgotten: %s", error)

    async def sweep(self) -> None:
        """Those that were not used for long, and the oldest of too many."""
        now = time.monotonic()
        old = [key for key, used in self._used.items() if now - used > self._idle_s]
        excess = list(self._used)[: max(0, len(self._used) - self._most)]
        for key in dict.fromkeys((*old, *excess)):
            await self.forget(key)

    def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.sweep()

"""Keeps track of the private sessions of this server, and deletes them together with their data outside of the
store."""

from __future__ import annotations

import asyncio
import logging

from agent_kernel.core.errors import AgentKernelError, SessionBusy
from agent_kernel.core.seams.sandbox import Sandbox
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.core.shielded_await import RunningTasks
from agent_kernel.sessions.store.private_store import is_private
from jupyter_ext.notebooks.kernels import Kernel

log = logging.getLogger(__name__)
TRIES = 50
PAUSE_S = 0.2
"""Seconds between attempts to delete a session. If the session's kernel is gone, its running turn takes a moment to
stop."""


class PrivateSessions:
    """The private sessions of this server. Such a session exists until a person ends it, the kernel of its last
    notebook is shut down, or the server stops."""

    def __init__(self, store: SessionStore, sandbox: Sandbox) -> None:
        self._store = store
        self._sandbox = sandbox
        self._known: set[SessionKey] = set()
        self._tasks = RunningTasks()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, key: SessionKey) -> None:
        """Register a session that was created, if it is private; other sessions are ignored."""
        if is_private(key.id):
            self._known.add(key)

    async def forget(self, key: SessionKey) -> bool:
        """Delete the session and its work directory. Return whether the session existed. Raises SessionBusy while a
        turn runs."""
        existed = await self._store.delete(key)
        await self._sandbox.close(key, remove=True)
        self._known.discard(key)
        return existed

    def on_kernel_gone(self, kernel: Kernel) -> None:
        for id in filter(is_private, kernel.sessions):
            self._tasks.start(self._forget(SessionKey(kernel.namespace, id)), f"forgetting {id}")

    async def aclose(self) -> None:
        """Remove the work directories. The sessions themselves are in memory and end with the store."""
        await self._tasks.wait()
        for key in self._known:
            await self._sandbox.close(key, remove=True)

    async def _forget(self, key: SessionKey) -> None:
        for _ in range(TRIES):
            try:
                await self.forget(key)
                return
            except SessionBusy:
                await asyncio.sleep(PAUSE_S)
            except AgentKernelError as error:
                log.warning("a private session could not be deleted: %s", error)
                return
        log.warning("a private session still runs a turn, so it is deleted only when the server stops")

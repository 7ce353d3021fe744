"""The steps of every route before a turn starts: check that the turn may start, and open its session. A refused turn
leaves no new session behind."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.session import SessionKey, new_id
from agent_kernel.turn.runtime import Runtime
from jupyter_ext.auth.callers import Caller
from jupyter_ext.notebooks.bindings import KERNEL, Notebooks, new_session_title
from jupyter_ext.notebooks.private_sessions import PrivateSessions
from jupyter_ext.turns.access import Access
from jupyter_ext.turns.ephemeral_sessions import EphemeralSessions, is_ephemeral
from jupyter_ext.turns.turns import Turns

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """The session of a turn. ``created``: it was created for this turn. ``of_place``: it is bound to a notebook or
    kernel, whose next turn uses it even if this turn is refused."""

    key: SessionKey
    created: bool = False
    of_place: bool = False


@dataclass(frozen=True, slots=True)
class TurnAdmission:
    """Shared by the native routes, the dialects and MCP."""

    runtime: Runtime
    turns: Turns
    access: Access
    notebooks: Notebooks
    private_sessions: PrivateSessions
    ephemeral_sessions: EphemeralSessions

    async def admit(self, caller: Caller, model: str | None = None) -> None:
        """Check that a turn may start now, before a session is created for it.

        Raises Forbidden, UnknownModel, TooManyRequests, and the error that was passed to ``Turns.stop_accepting``.
        """
        self.turns.check_accepting()
        self.check_model(caller, model)
        await self.turns.check_limits(caller.namespace, caller.token.id if caller.token else "")

    def check_model(self, caller: Caller, model: str | None) -> None:
        """Raise UnknownModel if the server does not have the model. ``Access.engine`` later refuses a model that the
        caller may not choose."""
        if model and self.access.may_choose(caller, model):
            self.runtime.engines.get(model)

    async def open_session(self, caller: Caller, session: str | None, place: str | None, prompt: str) -> OpenedSession:
        """Return the session that is named, else that of the place, else a new one.

        A session that is created gets its title from ``place`` or ``prompt``. Raises Forbidden.
        """
        title = self.runtime.afterwards.title(self.runtime.ledger.redactor.text(prompt))
        if session is None and place is not None:
            key, created = await self.notebooks.ensure_session(caller.namespace, place, title)
            if caller.kernel:
                caller.kernel.sessions.add(key.id)
            return OpenedSession(key, created, of_place=True)
        key = SessionKey(caller.namespace, session or new_id("session"))
        if await self.access.claim_id(caller, key.id):
            await self.runtime.store.create(key, new_session_title(place or KERNEL, title))
            return OpenedSession(key, created=True)
        if session:
            await self.runtime.store.forget(key)
        return OpenedSession(key)

    @asynccontextmanager
    async def removed_if_refused(self, caller: Caller, opened: OpenedSession) -> AsyncIterator[None]:
        """Remove a session that was created for a turn if the turn is refused, unless another turn uses it."""
        try:
            yield
        except AgentKernelError:
            if opened.created and not opened.of_place:
                await self._remove(caller, opened.key)
            raise

    async def _remove(self, caller: Caller, key: SessionKey) -> None:
        if self.turns.of_session(key) is not None:
            return
        if is_ephemeral(key.id):
            await self.ephemeral_sessions.forget(key)
            return
        try:
            session = await self.runtime.store.info(key)
            if session is None or session.turns:
                return
            await self.private_sessions.forget(key)
        except AgentKernelError as error:  # the client is told why the turn was refused, not this
            log.warning("a session that was created for a refused turn stays: %s", error)
            return
        if caller.kernel is not None:
            caller.kernel.sessions.discard(key.id)

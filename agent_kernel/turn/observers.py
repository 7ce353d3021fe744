"""Who wants to know what happens to sessions. An observer that fails harms nothing; it is logged, without content."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Iterable
from typing import Any, Protocol, TypeAlias

from agent_kernel.core.session import Session

OBSERVER_S = 5.0
"""An asynchronous observer is given up after this many seconds."""
HookResult: TypeAlias = Awaitable[None] | None

log = logging.getLogger(__name__)


class SessionObserver:
    """Override what you want to know; each method may be a coroutine. They run on the server's event loop, one after
    the other, within the turn they tell of: one that blocks keeps it waiting. ``run_id`` is the id of the turn."""

    def on_session_load(self, run_id: str, session_id: str, message_count: int) -> HookResult:
        """A turn begins; ``message_count`` messages of earlier turns were read."""

    def on_session_save(self, run_id: str, session_id: str, message_count: int) -> HookResult:
        """A turn ended, whatever its state; ``message_count`` messages of it are stored."""

    def on_session_expire(self, session: Session) -> HookResult:
        """The session is about to go (a policy, a person, the end of the server) and can still be read."""

    def on_conflict(self, session_id: str, error: Exception) -> HookResult:
        """Somebody else was first: another writer, or another server that took the turn over. That a turn had to wait
        for another one is none."""


class Observer(Protocol):
    """What is called: a SessionObserver, or anything with these four methods."""

    def on_session_load(self, run_id: str, session_id: str, message_count: int) -> HookResult: ...

    def on_session_save(self, run_id: str, session_id: str, message_count: int) -> HookResult: ...

    def on_session_expire(self, session: Session) -> HookResult: ...

    def on_conflict(self, session_id: str, error: Exception) -> HookResult: ...


class Observers:
    """All of them, in order. No method raises, except when its caller is cancelled."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = tuple(observers)

    async def loaded(self, run_id: str, session_id: str, message_count: int) -> None:
        await self._tell("on_session_load", run_id, session_id, message_count)

    async def saved(self, run_id: str, session_id: str, message_count: int) -> None:
        await self._tell("on_session_save", run_id, session_id, message_count)

    async def expired(self, session: Session) -> None:
        """To be awaited before the session is removed, so that observers can still read it."""
        await self._tell("on_session_expire", session)

    async def conflict(self, session_id: str, error: Exception) -> None:
        await self._tell("on_conflict", session_id, error)

    async def _tell(self, event: str, *facts: Any) -> None:
        for observer in self._observers:
            try:
                told = getattr(observer, event)(*facts)
                if inspect.isawaitable(told):
                    await asyncio.wait_for(told, OBSERVER_S)
            except Exception as error:  # noqa: BLE001  an observer's failure is its own
                log.error("%s of %s failed: %s", event, type(observer).__qualname__, type(error).__name__)

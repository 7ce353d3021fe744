"""Calls the observers of sessions, which are objects that the settings or the caller name. An observer that fails does
not affect the turn; the failure is logged without any text of the session."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Iterable
from typing import Any, TypeAlias

from agent_kernel.core.session import Session

OBSERVER_S = 5.0
"""Timeout of an asynchronous observer in seconds."""
HookResult: TypeAlias = Awaitable[None] | None

log = logging.getLogger(__name__)


class SessionObserver:
    """Base class of observers; override the methods you need. Each may be a coroutine. An observer with all four
    methods need not inherit from it.

    Methods run on the server's event loop, one after another, within the turn: a method that blocks delays the turn.
    ``run_id`` is the id of the turn.
    """

    def on_session_load(self, run_id: str, session_id: str, message_count: int) -> HookResult:
        """Called when a turn begins, after ``message_count`` messages of earlier turns were read."""

    def on_session_save(self, run_id: str, session_id: str, message_count: int) -> HookResult:
        """Called when a turn has ended in any state, with ``message_count`` of its messages stored."""

    def on_session_expire(self, session: Session) -> HookResult:
        """Called before the session is removed (by a policy, a person, or the end of the server); it can still be
        read."""

    def on_conflict(self, session_id: str, error: Exception) -> HookResult:
        """Called when another process wrote to the session first, or another server took over the turn. Not called when
        a turn only waits for another one."""


class Observers:
    """Calls all observers in order. No method raises, except when its caller is cancelled."""

    def __init__(self, observers: Iterable[SessionObserver] = ()) -> None:
        self._observers = tuple(observers)

    async def notify_load(self, run_id: str, session_id: str, message_count: int) -> None:
        await self._tell("on_session_load", run_id, session_id, message_count)

    async def notify_save(self, run_id: str, session_id: str, message_count: int) -> None:
        await self._tell("on_session_save", run_id, session_id, message_count)

    async def notify_expire(self, session: Session) -> None:
        """Notify the observers. Await this before the session is removed, so that they can still read it."""
        await self._tell("on_session_expire", session)

    async def notify_conflict(self, session_id: str, error: Exception) -> None:
        await self._tell("on_conflict", session_id, error)

    async def _tell(self, event: str, *facts: Any) -> None:
        for observer in self._observers:
            try:
                result = getattr(observer, event)(*facts)
                if inspect.isawaitable(result):
                    await asyncio.wait_for(result, OBSERVER_S)
            except Exception as error:  # noqa: BLE001  an observer's failure is its own
                log.error("%s of %s failed: %s", event, type(observer).__qualname__, type(error).__name__)

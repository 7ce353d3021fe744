"""Manages the connection of one open page: the turns that the page follows, the sessions and kernels that it watches,
and the calls that it can run. When the page is closed, all of these end except for the turns themselves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TypeAlias

from agent_kernel.core.errors import AgentKernelError, QuotaExceeded
from agent_kernel.core.events import Event
from jupyter_ext.push.page_outbox import Outbox, PageGone

MAX_HELD = 200
"""Maximum number of subscriptions of one page: the turns that it follows, the sessions and kernels that it watches, and
the kernels whose calls it can run, counted together."""

GOING_AWAY = 1001
"""The WebSocket close code with which the server closes a connection when it stops."""

log = logging.getLogger(__name__)

Held: TypeAlias = tuple[str, str]
"""The kind of a subscription (session, kernel, serve) and the id of its session or kernel."""


class PageConnection:
    """The connection of one page. It belongs to one event loop."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[Held, Callable[[], None]] = {}

    @property
    def held_count(self) -> int:
        return len(self._followed) + len(self._ends)

    def follow(
        self, turn: str, events: AsyncGenerator[Event, None], error_fields: Mapping[str, str], number: int = 0
    ) -> None:
        """Send the events of a turn to the page. ``number`` is the page's number for the request. If the page follows
        the turn already, the events continue from the new position: a message ``following`` with ``number`` is sent
        after the events that were queued and before the first new event. ``error_fields`` are fields that are added
        to an error message. Raises QuotaExceeded."""
        self.unfollow(turn)
        self._check_room()
        self.outbox.send_now({"type": "following", "turn": turn, "number": number})
        task = asyncio.create_task(self._send(events, error_fields), name=f"a page follows {turn}")
        self._followed[turn] = task
        task.add_done_callback(lambda done: self._on_follow_done(turn, done, error_fields))

    def unfollow(self, turn: str) -> None:
        if task := self._followed.pop(turn, None):
            task.cancel()

    def hold(self, subscription: Held, begin: Callable[[], Callable[[], None]]) -> None:
        """Add a subscription, in place of a subscription with the same key ``subscription``. ``begin`` starts it and
        returns a function that ends it. Raises QuotaExceeded."""
        self.drop(subscription)
        self._check_room()
        self._ends[subscription] = begin()

    def drop(self, subscription: Held) -> None:
        if end := self._ends.pop(subscription, None):
            end()

    def close(self) -> None:
        self.outbox.close()
        for task in self._followed.values():
            task.cancel()
        for end in self._ends.values():
            end()
        self._followed, self._ends = {}, {}

    async def _send(self, events: AsyncGenerator[Event, None], error_fields: Mapping[str, str]) -> None:
        with contextlib.suppress(PageGone):
            async with contextlib.aclosing(events):
                try:
                    async for event in events:
                        await self.outbox.send(event.to_json())
                except AgentKernelError as error:
                    await self.outbox.send({"type": "error", "error": error.to_json(), "about": dict(error_fields)})

    def _on_follow_done(self, turn: str, task: asyncio.Task[None], error_fields: Mapping[str, str]) -> None:
        """Remove a turn that has ended, unless the page follows it again."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the events of a turn could not be sent to a page", exc_info=error)
            shown_error = AgentKernelError(
                "The events of this turn could not be sent because of an unexpected error.",
                hint="Reload the page. The log of the Jupyter server contains the error.",
            )
            self.outbox.send_now({"type": "error", "error": shown_error.to_json(), "about": dict(error_fields)})
        if self._followed.get(turn) is task:
            del self._followed[turn]

    def _check_room(self) -> None:
        if self.held_count >= MAX_HELD:
            raise QuotaExceeded(f"One page can follow at most {MAX_HELD} turns, sessions and kernels at once.")


class PageConnections:
    """The connections of all pages that are open now."""

    def __init__(self) -> None:
        self._leave: dict[PageConnection, Callable[[int, str], None]] = {}

    def add(self, page: PageConnection, leave: Callable[[int, str], None]) -> None:
        """Register a page. ``leave`` closes its connection with a code and a reason."""
        self._leave[page] = leave

    def remove(self, page: PageConnection) -> None:
        self._leave.pop(page, None)
        page.close()

    def __len__(self) -> int:
        return len(self._leave)

    def close(self) -> None:
        """Disconnect all pages with a code that lets them reconnect when the server is back."""
        for leave in [*self._leave.values()]:
            leave(GOING_AWAY, "The server is stopping.")

"""Counts events of accounts on all servers that share a store."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.shielded_await import RunningTasks
from agent_kernel.sessions.log.message_bus import EventCount, EventCounter
from jupyter_ext.quotas.spending_rows import QuotaAccount

Limits = Mapping[QuotaAccount, int]
"""The accounts of an event, and how many events each may have at a time; 0: any number."""
Counts = Mapping[QuotaAccount, EventCount]

log = logging.getLogger(__name__)


class SharedEvents(Protocol):
    """The interface to event counts that servers share (``MessageBus``), for use on the event loop."""

    async def count_event(
        self, event: str, counters: Sequence[EventCounter], window_s: float
    ) -> Sequence[EventCount]: ...

    async def renew_events(self, counted: Sequence[tuple[str, EventCounter]], window_s: float) -> None: ...

    async def uncount_event(self, event: str, counters: Sequence[EventCounter]) -> None: ...


class SharedCounts:
    """Counts events of one ``kind``, each of which counts for ``window_s`` seconds by the clock of the database. Each
    count takes one request to the database. Accounts without a limit are left out. ``failure`` is logged if an event
    cannot be uncounted."""

    def __init__(self, events: SharedEvents, kind: str, window_s: float, failure: str) -> None:
        self.events = events
        self._kind = kind
        self._window_s = window_s
        self._failure = failure
        self._uncounting = RunningTasks()

    def counters(self, limits: Limits) -> dict[QuotaAccount, EventCounter]:
        return {
            account: EventCounter(account.user, account.name_in_store(self._kind), limit)
            for account, limit in limits.items()
            if limit
        }

    async def count(self, event: str, limits: Limits) -> Counts:
        """Count an event for all accounts, unless one of them has reached its limit. Return the counts before it. An
        empty ``event`` counts nothing. Raises StoreError."""
        counters = self.counters(limits)
        if not counters:
            return {}
        counts = await self.events.count_event(event, [*counters.values()], self._window_s)
        return dict(zip(counters, counts, strict=True))

    def uncount(self, event: str, limits: Limits) -> None:
        """Begin to undo the counting of an event. Does not wait for the database; ``aclose`` does."""
        if counters := [*self.counters(limits).values()]:
            self._uncounting.start(self._uncount(event, counters), f"uncount a turn that {self._kind}")

    async def aclose(self) -> None:
        await self._uncounting.wait()

    async def _uncount(self, event: str, counters: Sequence[EventCounter]) -> None:
        try:
            await self.events.uncount_event(event, counters)
        except AgentKernelError as error:
            log.warning("%s: %s", self._failure, error)

"""Counts the turns that each account has started within the last minute, so that an account at its limit can start no
further turn."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.sessions.log.message_bus import EventCount, EventCounter
from jupyter_ext.quotas.spending_rows import QuotaAccount

WINDOW_S = 60.0
REFUSE_S = 2.0
"""Seconds for which a server refuses an account again, after a refusal, without asking the database."""
MANY = 1_000
"""Number of accounts above which accounts without a turn in the last minute are forgotten."""
Counts = Mapping[QuotaAccount, EventCount]

log = logging.getLogger(__name__)


class RequestRates(Protocol):
    """Counts the starts of turns. ``limits`` are the accounts of a turn, and how many turns each may start in any
    minute; 0: any number."""

    async def count(self, start: str, limits: Mapping[QuotaAccount, int]) -> Counts:
        """Count a start for all accounts. If one of them has reached its limit, it is counted for none. ``start`` is a
        unique name. Returns the counts before this start. Raises StoreError."""

    def take_back(self, start: str, limits: Mapping[QuotaAccount, int]) -> None:
        """Undo a counted start, because no turn began."""

    def peek(self, limits: Mapping[QuotaAccount, int]) -> Counts:
        """Return what this server knows without asking the database, so that a request can be refused early; ``count``
        makes the final decision.
        """

    async def read(self, limits: Mapping[QuotaAccount, int]) -> Counts:
        """Return the counts for display. Raises StoreError."""

    async def aclose(self) -> None:
        """Wait until the starts that ``take_back`` was called for are no longer counted."""


class LocalRates:
    """The starts of one server, in memory."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: dict[QuotaAccount, deque[tuple[float, str]]] = {}

    async def count(self, start: str, limits: Mapping[QuotaAccount, int]) -> Counts:
        counts, now = self.peek(limits), self._clock()
        if not any(count.wait_s for count in counts.values()):
            self._forget(now)
            for account in limits:
                self._began.setdefault(account, deque()).append((now, start))
        return counts

    def take_back(self, start: str, limits: Mapping[QuotaAccount, int]) -> None:
        for account in limits:
            kept = [entry for entry in self._began.get(account, ()) if entry[1] != start]
            self._began[account] = deque(kept)

    def peek(self, limits: Mapping[QuotaAccount, int]) -> Counts:
        now = self._clock()
        return {account: self._look(account, limit, now) for account, limit in limits.items()}

    async def read(self, limits: Mapping[QuotaAccount, int]) -> Counts:
        return self.peek(limits)

    async def aclose(self) -> None:
        """Do nothing: the counts are in memory."""

    def _look(self, account: QuotaAccount, limit: int, now: float) -> EventCount:
        began = self._began.get(account, deque())
        while began and began[0][0] <= now - WINDOW_S:
            began.popleft()
        is_full = bool(limit) and len(began) >= limit
        return EventCount(len(began), began[-limit][0] + WINDOW_S - now if is_full else 0.0)

    def _forget(self, now: float) -> None:
        if len(self._began) > MANY:
            known = self._began.items()
            self._began = {account: began for account, began in known if began and began[-1][0] > now - WINDOW_S}


class EventCounts(Protocol):
    """The interface to event counts that servers share (``MessageBus``), for use on the event loop."""

    async def count_event(
        self, event: str, counters: Sequence[EventCounter], window_s: float
    ) -> Sequence[EventCount]: ...

    async def uncount_event(self, event: str, counters: Sequence[EventCounter]) -> None: ...


class SharedRates:
    """Counts the starts of turns on all servers that share a store, by the clock of the database. Counting a start
    takes one request to the database. For accounts without a limit, each server counts by itself.
    """

    def __init__(self, counts: EventCounts) -> None:
        self._counts = counts
        self._unlimited = LocalRates()
        self._refused: dict[QuotaAccount, tuple[float, EventCount]] = {}
        self._taking_back: set[asyncio.Task[None]] = set()

    async def count(self, start: str, limits: Mapping[QuotaAccount, int]) -> Counts:
        shared = await self._ask(start, limits)
        self._note_refusals(shared)
        if any(count.wait_s for count in shared.values()):
            return shared
        return {**shared, **await self._unlimited.count(start, _without_limit(limits))}

    def take_back(self, start: str, limits: Mapping[QuotaAccount, int]) -> None:
        self._unlimited.take_back(start, _without_limit(limits))
        if counters := _counters(limits):
            task = asyncio.create_task(self._uncount(start, [*counters.values()]), name="take back a start")
            self._taking_back.add(task)
            task.add_done_callback(self._taking_back.discard)

    def peek(self, limits: Mapping[QuotaAccount, int]) -> Counts:
        now = time.monotonic()
        refused = {account: self._refused[account] for account in limits if account in self._refused}
        return {
            account: replace(count, wait_s=count.wait_s - (now - at))
            for account, (at, count) in refused.items()
            if now - at < min(REFUSE_S, count.wait_s)
        }

    async def read(self, limits: Mapping[QuotaAccount, int]) -> Counts:
        return {**await self._ask("", limits), **self._unlimited.peek(_without_limit(limits))}

    async def aclose(self) -> None:
        if self._taking_back:
            await asyncio.wait([*self._taking_back])

    async def _ask(self, start: str, limits: Mapping[QuotaAccount, int]) -> Counts:
        counters = _counters(limits)
        if not counters:
            return {}
        found = await self._counts.count_event(start, [*counters.values()], WINDOW_S)
        return dict(zip(counters, found, strict=True))

    def _note_refusals(self, counts: Counts) -> None:
        now = time.monotonic()
        if len(self._refused) > MANY:
            self._refused = {account: known for account, known in self._refused.items() if now - known[0] < REFUSE_S}
        for account, count in counts.items():
            if count.wait_s:
                self._refused[account] = now, count
            else:
                self._refused.pop(account, None)

    async def _uncount(self, start: str, counters: Sequence[EventCounter]) -> None:
        try:
            await self._counts.uncount_event(start, counters)
        except AgentKernelError as error:
            log.warning("a turn that did not begin counts for a minute: %s", error)


def _counters(limits: Mapping[QuotaAccount, int]) -> dict[QuotaAccount, EventCounter]:
    return {
        account: EventCounter(account.user, account.name_in_store("started"), limit)
        for account, limit in limits.items()
        if limit
    }


def _without_limit(limits: Mapping[QuotaAccount, int]) -> dict[QuotaAccount, int]:
    return {account: limit for account, limit in limits.items() if not limit}

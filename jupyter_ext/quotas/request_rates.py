"""Counts the turns that each account has started within the last minute, so that an account at its limit can start no
further turn."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from agent_kernel.sessions.log.message_bus import EventCount
from jupyter_ext.quotas.spending_rows import QuotaAccount
from jupyter_ext.quotas.turn_slots import Counts, Limits, SharedCounts, SharedEvents

WINDOW_S = 60.0
REFUSE_S = 2.0
"""Seconds for which a server refuses an account again, after a refusal, without asking the database."""
MANY = 1_000
"""Number of accounts above which accounts without a turn in the last minute are forgotten."""


class RequestRates(Protocol):
    """Counts the starts of turns. ``limits`` are the accounts of a turn, and how many turns each may start in any
    minute; 0: any number."""

    async def count(self, start: str, limits: Limits) -> Counts:
        """Count a start for all accounts. If one of them has reached its limit, it is counted for none. ``start`` is a
        unique name. Returns the counts before this start. Raises StoreError."""

    def take_back(self, start: str, limits: Limits) -> None:
        """Undo a counted start, because no turn began."""

    def peek(self, limits: Limits) -> Counts:
        """Return the counts that this server knows without asking the database, so that a request can be refused early;
        ``count`` makes the final decision."""

    async def read(self, limits: Limits) -> Counts:
        """Return the counts for display. Raises StoreError."""

    async def aclose(self) -> None:
        """Wait until every start that was passed to ``take_back`` has been subtracted from the counts."""


class LocalRates:
    """Counts the starts of turns on one server, in memory."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: dict[QuotaAccount, deque[tuple[float, str]]] = {}

    async def count(self, start: str, limits: Limits) -> Counts:
        counts, now = self.peek(limits), self._clock()
        if not any(count.wait_s for count in counts.values()):
            self._forget(now)
            for account in limits:
                self._began.setdefault(account, deque()).append((now, start))
        return counts

    def take_back(self, start: str, limits: Limits) -> None:
        for account in limits:
            remaining = [entry for entry in self._began.get(account, ()) if entry[1] != start]
            self._began[account] = deque(remaining)

    def peek(self, limits: Limits) -> Counts:
        now = self._clock()
        return {account: self._look(account, limit, now) for account, limit in limits.items()}

    async def read(self, limits: Limits) -> Counts:
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
            entries = self._began.items()
            self._began = {account: began for account, began in entries if began and began[-1][0] > now - WINDOW_S}


class SharedRates:
    """Counts the starts of turns on all servers that share a store. For accounts without a limit, each server counts by
    itself."""

    def __init__(self, events: SharedEvents) -> None:
        self._counts = SharedCounts(events, "started", WINDOW_S, "a turn that did not begin counts for a minute")
        self._unlimited = LocalRates()
        self._refused: dict[QuotaAccount, tuple[float, EventCount]] = {}

    async def count(self, start: str, limits: Limits) -> Counts:
        shared = await self._counts.count(start, limits)
        self._note_refusals(shared)
        if any(count.wait_s for count in shared.values()):
            return shared
        return {**shared, **await self._unlimited.count(start, _without_limit(limits))}

    def take_back(self, start: str, limits: Limits) -> None:
        self._unlimited.take_back(start, _without_limit(limits))
        self._counts.uncount(start, limits)

    def peek(self, limits: Limits) -> Counts:
        now = time.monotonic()
        refused = {account: self._refused[account] for account in limits if account in self._refused}
        return {
            account: replace(count, wait_s=count.wait_s - (now - at))
            for account, (at, count) in refused.items()
            if now - at < min(REFUSE_S, count.wait_s)
        }

    async def read(self, limits: Limits) -> Counts:
        return {**await self._counts.count("", limits), **self._unlimited.peek(_without_limit(limits))}

    async def aclose(self) -> None:
        await self._counts.aclose()

    def _note_refusals(self, counts: Counts) -> None:
        now = time.monotonic()
        if len(self._refused) > MANY:
            self._refused = {account: known for account, known in self._refused.items() if now - known[0] < REFUSE_S}
        for account, count in counts.items():
            if count.wait_s:
                self._refused[account] = now, count
            else:
                self._refused.pop(account, None)


def _without_limit(limits: Limits) -> dict[QuotaAccount, int]:
    return {account: limit for account, limit in limits.items() if not limit}

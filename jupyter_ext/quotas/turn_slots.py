"""Counts the unfinished turns of each account, so that an account at its limit can start no further turn."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.shielded_await import RunningTasks
from agent_kernel.sessions.log.message_bus import EventCount, EventCounter
from jupyter_ext.quotas.spending_rows import QuotaAccount

# Counts events of accounts on all servers that share a store.


Limits = Mapping[QuotaAccount, int]
"""The accounts of an event, and how many events each may have at a time; 0: any number."""
Counts = Mapping[QuotaAccount, EventCount]
SOON_S = 2.0
"""Seconds that a client is told to wait before a retry, if the time cannot be computed."""
LEASE_S = 60.0
"""Seconds, by the clock of the database, for which a turn of a server that was killed keeps its slots."""
RENEW_S = 15.0


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


log = logging.getLogger(__name__)


class TurnSlots(Protocol):
    """Counts turns that have not ended. ``limits`` are the accounts of a turn, and how many turns each may have at
    once; 0: any number."""

    async def take(self, turn: str, limits: Limits) -> Counts:
        """Take a slot for all accounts. If one of them has none left (its ``wait_s`` is positive), none is taken.
        ``turn`` is a unique name. Returns the counts before this turn. Raises StoreError."""

    def give_back(self, turn: str, limits: Limits) -> None:
        """Give back the slots of a turn, whether they were taken or not."""

    def peek(self, limits: Limits) -> Counts:
        """Return the counts that this server knows without asking the database, so that a request can be refused early;
        ``take`` makes the final decision."""

    async def read(self, limits: Limits) -> Counts:
        """Return the counts for display. Raises StoreError."""

    async def aclose(self) -> None:
        """Wait until the slots that were given back are free."""


class LocalSlots:
    """Counts the unfinished turns of one server in memory."""

    def __init__(self) -> None:
        self._turns: dict[str, tuple[QuotaAccount, ...]] = {}
        self._numbers: Counter[QuotaAccount] = Counter()

    async def take(self, turn: str, limits: Limits) -> Counts:
        counts = self.peek(limits)
        if not any(count.wait_s for count in counts.values()):
            self._turns[turn] = tuple(limits)
            self._numbers.update(limits.keys())
        return counts

    def give_back(self, turn: str, limits: Limits) -> None:
        self._numbers -= Counter(self._turns.pop(turn, ()))

    def peek(self, limits: Limits) -> Counts:
        return {
            account: EventCount(number, SOON_S if 0 < limit <= number else 0.0)
            for account, limit in limits.items()
            for number in (self._numbers[account],)
        }

    async def read(self, limits: Limits) -> Counts:
        return self.peek(limits)

    async def aclose(self) -> None:
        """Do nothing: the counts are in memory."""


class SharedSlots:
    """Counts the unfinished turns of all servers that share a store. A slot is an event that counts for LEASE_S, and
    the server of the turn renews it while the turn runs. So the slots of a server that was killed become free by
    themselves. Accounts without a limit need no request to the database: each server counts their turns for itself."""

    def __init__(self, events: SharedEvents, renew_s: float = RENEW_S) -> None:
        failure = f"a turn that has ended counts as running for up to {LEASE_S:.0f} seconds"
        self._counts = SharedCounts(events, "running", LEASE_S, failure)
        self._renew_s = renew_s
        self._own = LocalSlots()
        self._held: dict[str, Sequence[EventCounter]] = {}
        self._renewing: asyncio.Task[None] | None = None

    async def take(self, turn: str, limits: Limits) -> Counts:
        own_counts = self._own.peek(limits)
        if any(count.wait_s for count in own_counts.values()):
            return own_counts
        shared = await self._ask(turn, limits)
        if not any(count.wait_s for count in shared.values()):
            await self._own.take(turn, dict.fromkeys(limits, 0))
            if counters := [*self._counts.counters(limits).values()]:
                self._held[turn] = counters
                self._begin_renewing()
        return {**own_counts, **shared}

    def give_back(self, turn: str, limits: Limits) -> None:
        self._own.give_back(turn, limits)
        self._held.pop(turn, None)
        self._counts.uncount(turn, limits)

    def peek(self, limits: Limits) -> Counts:
        return self._own.peek(limits)

    async def read(self, limits: Limits) -> Counts:
        return {**self._own.peek(limits), **await self._ask("", limits)}

    async def aclose(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        await self._counts.aclose()

    async def _ask(self, turn: str, limits: Limits) -> Counts:
        counts = await self._counts.count(turn, limits)
        # ``wait_s`` is replaced, because a slot becomes free when a turn ends and not when its lease expires.
        return {account: EventCount(count.number, SOON_S if count.wait_s else 0.0) for account, count in counts.items()}

    def _begin_renewing(self) -> None:
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(), name="renew the slots of turns")

    async def _renew(self) -> None:
        """Renew all slots of this server until it holds none. While the database cannot be reached, they may expire;
        the next renewal counts them again."""
        try:
            while True:
                await asyncio.sleep(self._renew_s)
                if not self._held:
                    return
                held = [(turn, counter) for turn, counters in self._held.items() for counter in counters]
                try:
                    await self._counts.events.renew_events(held, LEASE_S)
                except AgentKernelError as error:
                    log.warning("the slots of running turns could not be renewed: %s", error)
        finally:
            self._renewing = None

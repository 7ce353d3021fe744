"""Count the unfinished turns of each account, so that an account at its limit can start no further turn."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.sessions.log.message_bus import EventCount, EventCounter
from jupyter_ext.quotas.request_rates import Counts
from jupyter_ext.quotas.spending_rows import QuotaAccount

SOON_S = 2.0
"""Seconds that a client is told to wait before a retry, if the time cannot be computed."""
LEASE_S = 60.0
"""Seconds, by the clock of the database, for which a turn of a server that was killed keeps its slots."""
RENEW_S = 15.0

log = logging.getLogger(__name__)


class TurnSlots(Protocol):
    """Counts turns that have not ended. ``limits`` are the accounts of a turn, and how many turns each may have at
    once; 0: any number."""

    async def take(self, turn: str, limits: Mapping[QuotaAccount, int]) -> Counts:
        """Take a slot for all accounts. If one of them has none left (its ``wait_s`` is positive), none is taken.
        ``turn`` is a unique name. Returns the counts before this turn. Raises StoreError."""

    def give_back(self, turn: str, limits: Mapping[QuotaAccount, int]) -> None:
        """Give back the slots of a turn, whether they were taken or not."""

    def peek(self, limits: Mapping[QuotaAccount, int]) -> Counts:
        """Return what this server knows without asking the database, so that a request can be refused early; ``take``
        makes the final decision."""

    async def read(self, limits: Mapping[QuotaAccount, int]) -> Counts:
        """Return the counts for display. Raises StoreError."""

    async def aclose(self) -> None:
        """Wait until the slots that were given back are free."""


class LocalSlots:
    """Counts the unfinished turns of one server in memory."""

    def __init__(self) -> None:
        self._turns: dict[str, tuple[QuotaAccount, ...]] = {}
        self._numbers: Counter[QuotaAccount] = Counter()

    async def take(self, turn: str, limits: Mapping[QuotaAccount, int]) -> Counts:
        counts = self.peek(limits)
        if not any(count.wait_s for count in counts.values()):
            self._turns[turn] = tuple(limits)
            self._numbers.update(limits.keys())
        return counts

    def give_back(self, turn: str, limits: Mapping[QuotaAccount, int]) -> None:
        self._numbers -= Counter(self._turns.pop(turn, ()))

    def peek(self, limits: Mapping[QuotaAccount, int]) -> Counts:
        return {
            account: EventCount(number, SOON_S if 0 < limit <= number else 0.0)
            for account, limit in limits.items()
            for number in (self._numbers[account],)
        }

    async def read(self, limits: Mapping[QuotaAccount, int]) -> Counts:
        return self.peek(limits)

    async def aclose(self) -> None:
        """Do nothing: the counts are in memory."""


class SlotEvents(Protocol):
    """The interface to event counts that servers share (``MessageBus``), for use on the event loop."""

    async def count_event(
        self, event: str, counters: Sequence[EventCounter], window_s: float
    ) -> Sequence[EventCount]: ...

    async def renew_events(self, counted: Sequence[tuple[str, EventCounter]], window_s: float) -> None: ...

    async def uncount_event(self, event: str, counters: Sequence[EventCounter]) -> None: ...


class SharedSlots:
    """Counts the unfinished turns of all servers that share a store. A slot is an event that counts for LEASE_S, and
    the server of the turn renews it while the turn runs. So the slots of a server that was killed become free by
    themselves. Accounts without a limit need no request to the database: each server counts their turns for itself."""

    def __init__(self, events: SlotEvents, renew_s: float = RENEW_S) -> None:
        self._events = events
        self._renew_s = renew_s
        self._own = LocalSlots()
        self._held: dict[str, Sequence[EventCounter]] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._giving_back: set[asyncio.Task[None]] = set()

    async def take(self, turn: str, limits: Mapping[QuotaAccount, int]) -> Counts:
        known = self._own.peek(limits)
        counters = _counters(limits)
        if any(count.wait_s for count in known.values()):
            return known
        shared = await self._ask(turn, counters)
        if not any(count.wait_s for count in shared.values()):
            await self._own.take(turn, dict.fromkeys(limits, 0))
            if counters:
                self._held[turn] = [*counters.values()]
                self._begin_renewing()
        return {**known, **shared}

    def give_back(self, turn: str, limits: Mapping[QuotaAccount, int]) -> None:
        self._own.give_back(turn, limits)
        self._held.pop(turn, None)
        if counters := [*_counters(limits).values()]:
            task = asyncio.create_task(self._uncount(turn, counters), name="give back the slot of a turn")
            self._giving_back.add(task)
            task.add_done_callback(self._giving_back.discard)

    def peek(self, limits: Mapping[QuotaAccount, int]) -> Counts:
        return self._own.peek(limits)

    async def read(self, limits: Mapping[QuotaAccount, int]) -> Counts:
        return {**self._own.peek(limits), **await self._ask("", _counters(limits))}

    async def aclose(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        if waiting := [*self._giving_back, *([self._renewing] if self._renewing else [])]:
            await asyncio.wait(waiting)

    async def _ask(self, turn: str, counters: Mapping[QuotaAccount, EventCounter]) -> Counts:
        if not counters:
            return {}
        found = await self._events.count_event(turn, [*counters.values()], LEASE_S)
        # A slot becomes free when a turn ends, not when its lease does.
        return {
            account: EventCount(count.number, SOON_S if count.wait_s else 0.0)
            for account, count in zip(counters, found, strict=True)
        }

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
                    await self._events.renew_events(held, LEASE_S)
                except AgentKernelError as error:
                    log.warning("the slots of running turns could not be renewed: %s", error)
        finally:
            self._renewing = None

    async def _uncount(self, turn: str, counters: Sequence[EventCounter]) -> None:
        try:
            await self._events.uncount_event(turn, counters)
        except AgentKernelError as error:
            log.warning("a turn that has ended counts as running for up to %.0f seconds: %s", LEASE_S, error)


def _counters(limits: Mapping[QuotaAccount, int]) -> dict[QuotaAccount, EventCounter]:
    return {
        account: EventCounter(account.user, account.name_in_store("running"), limit)
        for account, limit in limits.items()
        if limit
    }

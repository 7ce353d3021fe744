"""Who may ask an engine now: its slots go round by user, not to whoever came first."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

NEAR = 10
"""A waiting turn hears of each place up to this one; farther back of every fifth of the way."""


@dataclass(slots=True, eq=False)
class Ticket:
    """One model call in line. ``number`` is that of its turn; ``position`` >= 1 while it waits."""

    user: str
    number: int
    served: bool = False
    position: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def positions(self) -> AsyncGenerator[int, None]:
        """Its position now and whenever that changes much, until it is served; nothing where it need not wait."""
        while not self.served:
            self.changed.clear()
            yield self.position
            await self.changed.wait()

    def moved(self, position: int) -> None:
        told = self.position
        if position != told and (not told or position > told or position <= max(NEAR, told * 4 // 5)):
            self.position = position
            self.changed.set()


class FairQueue:
    """``slots`` of one engine, 0 = no bound. Used in one event loop.

    The next slot goes to the user who holds the fewest, of those to the one whose last call ended, or who came, longest
    ago; a user's calls are served by the number of their turn, so that an earlier turn is not passed by a later one.
    Whoever waits is passed by each other user once at most, however much those ask.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, list[Ticket]] = {}
        self._places: dict[str, int] = {}
        self._clock = 0

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def taken(self) -> int:
        return self._held.total()

    @contextmanager
    def ticket(self, user: str, number: int) -> Iterator[Ticket]:
        """In line from here on. Whoever leaves, served or not, whyever, takes nothing along."""
        ticket = Ticket(user, number)
        if user not in self._places:
            self._to_the_end(user)
        insort(self._waiting.setdefault(user, []), ticket, key=lambda other: other.number)
        self._advance()
        try:
            yield ticket
        finally:
            self._leave(ticket)

    def _leave(self, ticket: Ticket) -> None:
        if ticket.served:
            self._held[ticket.user] -= 1
            self._to_the_end(ticket.user)
        else:
            self._remove(ticket)
        if not self._held[ticket.user] and ticket.user not in self._waiting:
            del self._held[ticket.user], self._places[ticket.user]
        self._advance()

    def _advance(self) -> None:
        while self._waiting and (not self._slots or self.taken < self._slots):
            self._serve(next(self._in_order()))
        for position, ticket in enumerate(self._in_order(), 1):
            ticket.moved(position)

    def _serve(self, ticket: Ticket) -> None:
        self._remove(ticket)
        self._held[ticket.user] += 1
        ticket.served = True
        ticket.changed.set()

    def _in_order(self) -> Iterator[Ticket]:
        """As they would be served if nobody left: the n-th of a user comes when that user holds n more."""
        places = [
            (self._held[user] + behind, self._places[user], ticket)
            for user, tickets in self._waiting.items()
            for behind, ticket in enumerate(tickets)
        ]
        return (ticket for _, _, ticket in sorted(places, key=lambda place: place[:2]))

    def _to_the_end(self, user: str) -> None:
        self._clock += 1
        self._places[user] = self._clock

    def _remove(self, ticket: Ticket) -> None:
        self._waiting[ticket.user].remove(ticket)
        if not self._waiting[ticket.user]:
            del self._waiting[ticket.user]

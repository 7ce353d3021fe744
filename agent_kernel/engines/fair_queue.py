"""Queues the model calls for an engine, or for the models of this machine, and serves the users in turn."""

from __future__ import annotations

import asyncio
import itertools
from bisect import insort
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field

from agent_kernel.core.protocols import THINKING, Chunk, Engine, EngineRequest, WaitChunk

NEAR = 10
"""Calls at this position or nearer to the front report every change of their position. Calls further back report a move
forward only if it is at least a fifth of their position."""
OF_OTHERS = "others use the engine"
OTHER_MODEL = "another model is in use"


@dataclass(slots=True, eq=False)
class Ticket:
    """One model call in the queue. ``number`` is the number of the turn that makes the call; ``position`` is 1 or more
    while the call waits.

    ``served`` means that the call has a slot. ``waits_in_engine`` means that it has a slot, but the engine has not
    begun it yet.
    """

    queue: FairQueue
    user: str
    number: int
    engine: Engine | None = None
    served: bool = False
    waits_in_engine: bool = False
    position: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def positions(self) -> AsyncGenerator[int, None]:
        """Yield the position now and after each change that is large enough to report (see NEAR), until the call has a
        slot. Yields nothing if the call does not have to wait."""
        while not self.served:
            self.changed.clear()
            yield self.position
            await self.changed.wait()

    def set_position(self, position: int) -> None:
        last = self.position
        if position != last and (not last or position > last or position <= max(NEAR, last * 4 // 5)):
            self.position = position
            self.changed.set()

    def set_waits_in_engine(self, waits: bool) -> None:
        """Record whether the call waits for other calls in the engine's own queue."""
        if waits != self.waits_in_engine:
            self.waits_in_engine = waits
            self.queue.count_engine_wait(1 if waits else -1)


class FairQueue:
    """Gives the slots of an engine to calls. ``slots`` is the number of concurrent calls, 0 for no limit. It must be
    used in one event loop.

    Engines that share a queue run models of this machine, and only one of these models is in memory at a time. A call
    for another model waits until the calls before it have ended, and then replaces the model. Calls after this call
    wait too, even those for the model in memory, so that no call waits forever.

    The position of a call is the number of calls that begin before it, plus 1. These include calls that have a slot but
    wait in the engine's own queue, because the engine may decode fewer calls at a time than there are slots.

    The next slot goes to the user who holds the fewest slots; among those, to the user who has waited longest since
    their last call ended or since they arrived. The calls of one user are served by the number of their turn, so that a
    later turn does not overtake an earlier one. Each other user overtakes a waiting user at most once, however many
    calls they make.
    """

    def __init__(self, slots: int = 0) -> None:
        self._slots = slots
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, list[Ticket]] = {}
        self._places: dict[str, int] = {}
        self._clock = 0
        self._waiting_in_engine = 0
        self._in_memory: Engine | None = None
        self._replacing: Ticket | None = None
        self.numbers = itertools.count(1)

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a slot, or that have a slot and wait in the engine's own queue."""
        return self._waiting_in_engine + sum(map(len, self._waiting.values()))

    @property
    def in_use(self) -> int:
        return self._held.total()

    def waiting_for(self, engine: Engine) -> int:
        """Return the number of calls for ``engine`` that wait for a slot, or that have a slot and wait in the engine's
        own queue."""
        begun_late = self._waiting_in_engine if self._in_memory is engine else 0
        return begun_late + sum(ticket.engine is engine for line in self._waiting.values() for ticket in line)

    async def stream(
        self,
        engine: Engine,
        request: EngineRequest,
        user: str,
        number: int,
        arrived: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of one model call, preceded by chunks that state what the call waits for. The call counts
        for ``user`` and belongs to the turn with this ``number``. ``arrived`` is called once the call is in the
        queue."""
        with self.ticket(user, number, engine) as ticket:
            arrived()
            has_waited = False
            async with aclosing(ticket.positions()) as positions:
                async for position in positions:
                    has_waited = True
                    yield WaitChunk(OF_OTHERS if self._is_full else OTHER_MODEL, position=position)
            if self._replacing is ticket and (before := self._in_memory) is not None:
                yield WaitChunk(f"unloading {before.info().model}")
                await before.aclose()
                self._in_memory, self._replacing = engine, None
                self._advance()
            if has_waited:
                yield WaitChunk(THINKING)
            async with aclosing(engine.stream(request)) as chunks:
                async for chunk in chunks:
                    if ticket.waits_in_engine or isinstance(chunk, WaitChunk):
                        ticket.set_waits_in_engine(isinstance(chunk, WaitChunk) and chunk.position > 0)
                    yield chunk

    @contextmanager
    def ticket(self, user: str, number: int, engine: Engine | None = None) -> Iterator[Ticket]:
        """Context manager that puts a call into the queue and returns its ticket at once; ``Ticket.positions`` waits
        for the slot. Leaving the context, for any reason, frees the slot or the place in the queue."""
        ticket = Ticket(self, user, number, engine)
        if user not in self._places:
            self._move_to_end(user)
        insort(self._waiting.setdefault(user, []), ticket, key=lambda other: other.number)
        self._advance()
        try:
            yield ticket
        finally:
            self._leave(ticket)

    def count_engine_wait(self, change: int) -> None:
        self._waiting_in_engine += change
        self._number_waiting()

    def _leave(self, ticket: Ticket) -> None:
        ticket.set_waits_in_engine(False)
        if self._replacing is ticket:
            self._replacing = None
        if ticket.served:
            self._held[ticket.user] -= 1
            self._move_to_end(ticket.user)
        else:
            self._remove(ticket)
        if not self._held[ticket.user] and ticket.user not in self._waiting:
            del self._held[ticket.user], self._places[ticket.user]
        self._advance()

    def _advance(self) -> None:
        while (ticket := next(self._order_waiting(), None)) and self._may_begin(ticket):
            self._serve(ticket)
        self._number_waiting()

    @property
    def _is_full(self) -> bool:
        return bool(self._slots) and self.in_use >= self._slots

    def _may_begin(self, ticket: Ticket) -> bool:
        fits = not self.in_use or self._in_memory is ticket.engine
        return fits and not self._is_full and self._replacing is None

    def _number_waiting(self) -> None:
        for position, ticket in enumerate(self._order_waiting(), self._waiting_in_engine + 1):
            ticket.set_position(position)

    def _serve(self, ticket: Ticket) -> None:
        self._remove(ticket)
        self._held[ticket.user] += 1
        if self._in_memory is None:
            self._in_memory = ticket.engine
        elif self._in_memory is not ticket.engine:
            self._replacing = ticket
        ticket.served = True
        ticket.changed.set()

    def _order_waiting(self) -> Iterator[Ticket]:
        """Yield the waiting tickets in the order in which they would be served if no running call ended. For this
        order, each waiting call of a user counts as a slot that the user holds when the user's next call is placed."""
        places = [
            (self._held[user] + behind, self._places[user], ticket)
            for user, tickets in self._waiting.items()
            for behind, ticket in enumerate(tickets)
        ]
        return (ticket for _, _, ticket in sorted(places, key=lambda place: place[:2]))

    def _move_to_end(self, user: str) -> None:
        self._clock += 1
        self._places[user] = self._clock

    def _remove(self, ticket: Ticket) -> None:
        self._waiting[ticket.user].remove(ticket)
        if not self._waiting[ticket.user]:
            del self._waiting[ticket.user]

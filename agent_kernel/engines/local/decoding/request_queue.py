"""Admits requests to a limited capacity, and shares it fairly between sessions.

The worker limits two capacities: the number of requests decoded at once, and the blocks of the KV cache. If the cache
overflowed, the library would end requests that could have run a moment later.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

from agent_kernel.core.errors import EngineBusy

RETRY_AFTER_S = 2
MAX_WAITING = 256
"""Maximum number of waiting requests. Further requests are refused at once."""

Tell: TypeAlias = Callable[[int], None]
"""Called with a waiting request's position in the queue, where 1 is the next: once when it begins to wait, and whenever
the position changes. It is never called for a request that does not wait."""


@dataclass(slots=True, eq=False)
class _Waiter:
    session: str
    size: int
    tell: Tell
    admitted: asyncio.Future[None]
    position: int = 0


class Admission:
    """Admits requests to a limited capacity; used in one event loop. The next request is one of the session that has
    the fewest running requests; among such sessions, the one that waits longest. The requests of one session are
    admitted in the order of their arrival. A large request is not overtaken by smaller ones behind it."""

    def __init__(self, capacity: int, waiting: int = MAX_WAITING) -> None:
        self.capacity = capacity
        self.taken = 0
        self._max_waiting = waiting
        self._held: Counter[str] = Counter()
        self._queues: dict[str, deque[_Waiter]] = {}

    @property
    def waiting(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    @asynccontextmanager
    async def place(self, session: str, tell: Tell, size: int = 1) -> AsyncGenerator[None, None]:
        """Context manager that holds ``size`` units of the capacity, after waiting if necessary. A request that is
        cancelled while it waits leaves the queue. Raises EngineBusy if too many requests wait already, and ValueError
        if ``size`` exceeds the capacity."""
        if size > self.capacity:
            raise ValueError(f"the size is {size}, but the capacity is only {self.capacity}")
        await self._enter(session, tell, size)
        try:
            yield
        finally:
            self._leave(session, size)

    async def _enter(self, session: str, tell: Tell, size: int) -> None:
        if self.waiting >= self._max_waiting:
            raise EngineBusy(
                f"{self.waiting} requests wait for the model already; no more are accepted.",
                hint="Try again later, or stop some of the turns that wait.",
                details={"waiting": self.waiting, "running": sum(self._held.values()), "retry_after_s": RETRY_AFTER_S},
            )
        waiter = _Waiter(session, size, tell, asyncio.get_running_loop().create_future())
        self._queues.setdefault(session, deque()).append(waiter)
        self._admit()
        try:
            await waiter.admitted
        except asyncio.CancelledError:
            if waiter.admitted.done() and not waiter.admitted.cancelled():
                self._leave(session, size)
            else:
                self._remove(waiter)
                self._admit()
            raise

    def _leave(self, session: str, size: int) -> None:
        self.taken -= size
        self._held[session] -= 1
        if not self._held[session]:
            del self._held[session]
        self._admit()

    def _admit(self) -> None:
        while (waiter := next(self._order_waiting(), None)) is not None and waiter.size <= self.capacity - self.taken:
            self._remove(waiter)
            if waiter.session in self._queues:  # the session's next request waits behind the other sessions
                self._queues[waiter.session] = self._queues.pop(waiter.session)
            self.taken += waiter.size
            self._held[waiter.session] += 1
            waiter.admitted.set_result(None)
        for position, waiter in enumerate(self._order_waiting(), 1):
            if waiter.position != position:
                waiter.position = position
                waiter.tell(position)

    def _order_waiting(self) -> Iterator[_Waiter]:
        """Yield the waiting requests in the order in which they would be admitted if no running request ended. For this
        order, each waiting request of a session counts as running when the session's next request is placed."""
        turns = [
            (self._held[session] + behind, order, waiter)
            for order, (session, queue) in enumerate(self._queues.items())
            for behind, waiter in enumerate(queue)
        ]
        return (waiter for _, _, waiter in sorted(turns, key=lambda turn: turn[:2]))

    def _remove(self, waiter: _Waiter) -> None:
        self._queues[waiter.session].remove(waiter)
        if not self._queues[waiter.session]:
            del self._queues[waiter.session]

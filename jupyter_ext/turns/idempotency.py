"""A request that comes again under its key begins nothing: it is answered by the turn that it began the first time,
while that runs, later from its log, and later still from what the session keeps of it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.errors import Conflict, InvalidRequest, KeyReused, StoreError
from agent_kernel.core.events import CallOffered, CallStarted, Event, TurnState
from agent_kernel.core.request import TurnRequest
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Turn, new_id
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.store.private_store import is_private
from jupyter_ext.auth.callers import Caller, subject
from jupyter_ext.turns.event_log import EventLog
from jupyter_ext.turns.idempotency_rows import KEPT_S, PRIVATE, AnsweredRows, Key, Row
from jupyter_ext.turns.stored_events import replay
from jupyter_ext.turns.turn_versions import Versions
from jupyter_ext.turns.turns import STOPPING, LiveTurn, Order, Turns

log = logging.getLogger(__name__)
HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
"""Of an answer that had begun before."""
GRACE_S = 30.0
"""A client that lost its connection comes back under the same key; its turn runs on so long without a reader."""
LEFT = "the client left and did not come back"
MOST_HELD, MOST_BYTES = 1_000, 64 << 20
"""Logs of turns that are over, for answering again."""
BEGINS_WITHIN_S = 10.0
"""Another server that shares the file and has taken the key has its turn in the store by then, or was killed."""
POLL_S = 0.1
_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class Begun:
    """``facts`` are what the answer says beside the turn. ``again``: it had begun before."""

    turn: LiveTurn
    facts: Mapping[str, Any] = field(default_factory=dict)
    again: bool = False


class Entry:
    """One key of this server. ``readers`` are the requests that are being answered now."""

    def __init__(self, key: Key, began: float) -> None:
        self.key = key
        self.began = began
        self.begun: asyncio.Future[Begun] = asyncio.get_running_loop().create_future()
        self.readers = 0

    @property
    def turn(self) -> LiveTurn | None:
        """None while it is not begun."""
        known = self.begun.done() and not self.begun.cancelled() and self.begun.exception() is None
        return self.begun.result().turn if known else None


def key_of(caller: Caller, header: str | None, path: str, body: bytes) -> Key | None:
    """None without the header. The same request has the same path, below whatever mount, and the same bytes. Raises
    InvalidRequest."""
    if header is None:
        return None
    if not _KEY.fullmatch(header):
        raise InvalidRequest(f"{HEADER} has 1 to 255 printable ASCII characters.")
    request = hashlib.sha256(path.rpartition("/v1/")[2].encode() + b"\n" + body).hexdigest()
    return Key(caller.namespace, subject(caller), hashlib.sha256(header.encode()).hexdigest(), request)


class Idempotency:
    """Of one server. ``close`` when turns have ended."""

    def __init__(
        self, store: SessionStore, turns: Turns, records: Database, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._turns = turns
        self._versions = Versions(store)
        self._rows = AnsweredRows(records, clock)
        self._entries: dict[tuple[str, str, str], Entry] = {}
        self._clock = clock
        self._ending: set[asyncio.Future[Any]] = set()
        self._reading: set[asyncio.Task[None]] = set()

    async def once(self, key: Key, begin: Callable[[str], Awaitable[Begun | None]]) -> tuple[Entry, Begun] | None:
        """What the request began, now or before; ``begin`` is given the id for its turn, and may find that nothing is
        to be begun (None). Whoever comes meanwhile joins. Raises KeyReused, Conflict, StoreError, and what ``begin``
        does: then the key is as if it had not come.

        A turn that failed before any tool began, was interrupted so, or was stopped so because its client left or its
        server was stopped, has done nothing and said little: the request begins another.
        """
        entry = self._held(key)
        if entry is not None and entry.key.request != key.request:
            raise reused()
        if entry is not None and not (entry.turn is not None and _idle(entry.turn)):
            begun = await asyncio.shield(entry.begun)
            await self._must_stand(begun.turn)
            return entry, Begun(begun.turn, begun.facts, again=True)
        before = entry.turn if entry is not None else None
        entry = self._entries[key.place] = Entry(key, self._clock())
        try:
            found = await self._first(key, begin, before)
        except BaseException as error:
            self._drop(entry, error if isinstance(error, Exception) else Conflict("The first request was given up."))
            raise
        if found is None:
            self._drop(entry, Conflict("The first request began nothing.", hint="Send it again."))
            return None
        entry.begun.set_result(found)
        self._shed()
        return entry, found

    def joins(self, entry: Entry) -> None:
        entry.readers += 1

    def leaves(self, entry: Entry, *, stops: bool = True) -> None:
        """A turn that nobody reads any more ``stops``, unless its client comes back in time."""
        entry.readers -= 1
        turn = entry.turn
        if stops and turn is not None and turn.running and not entry.readers:
            asyncio.get_running_loop().call_later(GRACE_S, self._stop, entry, turn)

    async def aclose(self) -> None:
        for task in self._reading:
            task.cancel()
        if tasks := {*self._ending, *self._reading}:
            await asyncio.wait(tasks)

    # ------------------------------------------------------------------------------------------------ the first time

    async def _first(
        self, key: Key, begin: Callable[[str], Awaitable[Begun | None]], before: LiveTurn | None
    ) -> Begun | None:
        """From the file, where it knows the key; else begun. ``before`` did nothing."""
        row = await self._rows.found(key)
        while True:
            if row is not None and row.request != key.request:
                raise reused()
            idle = row is None or (before is not None and row.turn == before.id)
            if row is not None and not idle and (known := await self._known(key, row)) is not None:
                return known
            turn = new_id("turn")
            other = await self._rows.claim(key, turn, row)
            if other is None:
                return await self._begin(key, turn, begin)
            row = other

    async def _begin(self, key: Key, turn: str, begin: Callable[[str], Awaitable[Begun | None]]) -> Begun | None:
        begun: Begun | None = None
        try:
            begun = await begin(turn)
        finally:
            if begun is None:
                await self._rows.forget(key, turn)
        if begun is None:
            return None
        try:
            await self._rows.began(key, turn, begun.turn.order.key.id, begun.facts)
        except StoreError as error:
            log.warning("which turn answers a key is not on disk: %s", error)
        return begun

    async def _known(self, key: Key, row: Row) -> Begun | None:
        """The turn of a row; None: it never began, or did nothing. Raises Conflict for one whose answer is not kept."""
        if live := self._turns.get(row.turn):
            return None if _idle(live) else Begun(live, row.facts, again=True)
        stored = None if row.session == PRIVATE else await self._stored(key, row)
        if stored is None:
            if not row.session:
                return None
            raise gone()
        if await self._did_nothing(stored):
            return None
        return Begun(self._made_again(stored), row.facts, again=True)

    async def _did_nothing(self, stored: Turn) -> bool:
        """As ``_idle``. The calls are looked for among the messages, which are kept before a call runs: a turn that was
        killed has no record of any."""
        if not _cut_short(stored.state, stored.reason):
            return False
        return not any(message.calls for message in await self._versions.said(stored))

    async def _stored(self, key: Key, row: Row) -> Turn | None:
        until = time.monotonic() + row.began + BEGINS_WITHIN_S - self._clock()
        while True:
            found = await self._store.turn(key.user, row.turn)
            if found is not None or row.session or time.monotonic() > until:
                return found
            await asyncio.sleep(POLL_S)

    def _made_again(self, stored: Turn) -> LiveTurn:
        """Its events from what the session keeps of it; those of one that another server runs come when it ends."""
        turn = LiveTurn(stored.id, Order(stored.key, TurnRequest()), EventLog(stored.id, stored.key.id))
        turn.task = asyncio.create_task(_told(self._store, stored, turn.log), name=f"again {stored.id}")
        self._reading.add(turn.task)
        turn.task.add_done_callback(self._reading.discard)
        return turn

    # ------------------------------------------------------------------------------------------------ held

    def _held(self, key: Key) -> Entry | None:
        entry = self._entries.get(key.place)
        if entry is not None and entry.began <= self._clock() - KEPT_S and not (entry.turn and entry.turn.running):
            del self._entries[key.place]
            return None
        return entry

    async def _must_stand(self, turn: LiveTurn) -> None:
        """What was deleted with its session is not said again. Raises KeyReused."""
        key = turn.order.key
        if not is_private(key.id) and await self._store.info(key) is None:
            raise gone()

    def _stop(self, entry: Entry, turn: LiveTurn) -> None:
        if turn.running and not entry.readers and self._turns.get(turn.id) is turn:
            stopping = asyncio.ensure_future(self._turns.cancel(turn, LEFT))
            self._ending.add(stopping)
            stopping.add_done_callback(self._ending.discard)

    def _drop(self, entry: Entry, error: Exception) -> None:
        if self._entries.get(entry.key.place) is entry:
            del self._entries[entry.key.place]
        entry.begun.set_exception(error)
        entry.begun.exception()  # whoever joined is told; it need not be anybody

    def _shed(self) -> None:
        """The oldest that are over, beyond what is held."""
        over = [entry for entry in self._entries.values() if entry.turn is not None and not entry.turn.running]
        size = sum(entry.turn.log.size for entry in over if entry.turn is not None)
        for entry in over:
            if len(over) <= MOST_HELD and size <= MOST_BYTES:
                return
            assert entry.turn is not None
            size -= entry.turn.log.size
            over = over[1:]
            del self._entries[entry.key.place]


async def _told(store: SessionStore, stored: Turn, log: EventLog) -> None:
    events: AsyncIterator[Event] = replay(store, stored, 0, media=True)
    async with aclosing(events):  # type: ignore[type-var]  # an async generator
        async for event in events:
            log.append(event.body)


def _cut_short(state: TurnState, reason: str) -> bool:
    """Nobody wanted that end."""
    return state in ("failed", "interrupted") or (state == "cancelled" and reason in (LEFT, STOPPING))


def _idle(turn: LiveTurn) -> bool:
    """It is over and has done nothing: it was cut short before any tool began."""
    end = turn.log.finished
    if end is None or not _cut_short(end.state, end.reason):
        return False
    return not any(isinstance(event.body, CallStarted | CallOffered) for event in turn.log.since(0))


def gone() -> KeyReused:
    return KeyReused("This request was answered before; its answer is not kept.", hint="Send it under another key.")


def reused() -> KeyReused:
    return KeyReused(
        f"This {HEADER} came with another request before.", hint="A key belongs to one request; send a new one."
    )

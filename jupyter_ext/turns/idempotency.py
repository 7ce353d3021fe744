"""Answers requests that are repeated with an idempotency key. The repeated request starts no second turn: it gets the
answer of the turn that the first request started.

The answer is read from the running turn, later from its event log, and after that from the items stored in the session.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from agent_kernel.core.errors import Conflict, InvalidRequest, KeyReused, StoreError
from agent_kernel.core.events import CallOffered, CallStarted, TurnState
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Turn, new_id
from agent_kernel.core.shielded_await import RunningTasks
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.sessions.store.private_store import is_private
from jupyter_ext.auth.callers import Caller, subject
from jupyter_ext.turns.event_log import EventLog
from jupyter_ext.turns.event_publisher import EventPublisher
from jupyter_ext.turns.idempotency_rows import KEPT_S, PRIVATE, IdempotencyKey, IdempotencyRow, IdempotencyRows
from jupyter_ext.turns.remote_turns import RemoteTurns
from jupyter_ext.turns.stored_events import replay
from jupyter_ext.turns.turn_versions import TurnVersions
from jupyter_ext.turns.turns import STOPPING, LiveTurn, Turns, TurnSpec

log = logging.getLogger(__name__)
HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
"""Response header of an answer that comes from a turn which an earlier request started."""
GRACE_S = 30.0
"""Seconds for which a turn continues without a reader, so that a client that lost its connection can come back under
the same key."""
LEFT = "the client left and did not come back"
MOST_HELD, MOST_BYTES = 1_000, 64 << 20
"""Limits for the event logs of finished turns that are kept for repeated requests: the number of logs, and their
bytes."""
BEGINS_WITHIN_S = 10.0
"""Another server that shares the rows and has claimed a key stores its turn within this time; a server that
takes longer is assumed to have been killed."""
POLL_S = 0.1
_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class StartedTurn:
    """A turn that a request has started, now or earlier.

    ``facts`` are the fields of the answer beside the turn. ``replayed``: an earlier request had started the turn.
    ``entry`` is the key of the request, if it has one.
    """

    turn: LiveTurn
    facts: Mapping[str, Any] = field(default_factory=dict)
    replayed: bool = False
    entry: KeyEntry | None = None

    @property
    def session(self) -> str:
        """The session id to return to a client of a dialect; empty if its later requests cannot refer to the
        session."""
        return str(self.facts.get("session", ""))


class KeyEntry:
    """The state of one idempotency key in this server. ``readers`` counts the requests that now receive their answer
    from the key's turn."""

    def __init__(self, key: IdempotencyKey, began: float) -> None:
        self.key = key
        self.began = began
        self.start: asyncio.Future[StartedTurn] = asyncio.get_running_loop().create_future()
        self.readers = 0

    @property
    def turn(self) -> LiveTurn | None:
        """The turn, or None while it is being started."""
        has_started = self.start.done() and not self.start.cancelled() and self.start.exception() is None
        return self.start.result().turn if has_started else None


def read_key(caller: Caller, header: str | None, path: str, body: bytes, choice: int = 0) -> IdempotencyKey | None:
    """Return the idempotency key of a request, or None without the header. The key covers the path below the mount
    point and the bytes of the body. Each further ``choice`` of a request has a key of its own. Raises
    InvalidRequest."""
    if header is None:
        return None
    if not _KEY.fullmatch(header):
        raise InvalidRequest(f"{HEADER} must have 1 to 255 printable ASCII characters.")
    request = hashlib.sha256(path.rpartition("/v1/")[2].encode() + b"\n" + body).hexdigest()
    name = f"{header}\n{choice}" if choice else header  # a header has no line breaks
    return IdempotencyKey(caller.namespace, subject(caller), hashlib.sha256(name.encode()).hexdigest(), request)


class Idempotency:
    """Starts one turn for each idempotency key and lets repeated requests read that turn. There is one instance for
    each server. Call ``aclose`` after the turns have ended."""

    def __init__(
        self,
        store: SessionStore,
        turns: Turns,
        rows: IdempotencyRows,
        *,
        remote_turns: RemoteTurns | None = None,
        publisher: EventPublisher | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._turns = turns
        self._versions = TurnVersions(store)
        self._rows = rows
        self._remote_turns = remote_turns or RemoteTurns(store, None)
        self._publisher = publisher
        self._entries: dict[tuple[str, str, str], KeyEntry] = {}
        self._clock = clock
        self._ending = RunningTasks()
        self._reading = RunningTasks()

    async def start_once(
        self, key: IdempotencyKey | None, begin: Callable[[str], Awaitable[StartedTurn | None]]
    ) -> StartedTurn | None:
        """Return the turn that this request starts, or that an earlier request with the same key has started. Without a
        key, every request starts a turn.

        ``begin`` starts the turn. It receives the id for the new turn (empty without a key), and may return None if
        there is nothing to start. A request with the same key that arrives while ``begin`` runs waits for the same
        turn. Raises KeyReused, Conflict, StoreError, and what ``begin`` raises; after an error from ``begin`` the key
        counts as unused.

        A turn that failed, was interrupted, or was stopped because its client left or its server stopped counts as not
        started if no tool had run by then: the request then starts another turn.
        """
        if key is None:
            return await begin("")
        entry = self._find_entry(key)
        if entry is not None and entry.key.request != key.request:
            raise key_reused()
        if entry is not None and not (entry.turn is not None and _had_no_effect(entry.turn)):
            begun = await asyncio.shield(entry.start)
            await self._check_session_exists(begun.turn)
            return replace(begun, replayed=True, entry=entry)
        before = entry.turn if entry is not None else None
        entry = self._entries[key.identity] = KeyEntry(key, self._clock())
        try:
            turn = await self._begin_or_recover(key, begin, before)
        except BaseException as error:
            self._drop(
                entry,
                error if isinstance(error, Exception) else Conflict("The first request with this key was cancelled."),
            )
            raise
        if turn is None:
            self._drop(entry, Conflict("The first request with this key started no turn.", hint="Send it again."))
            return None
        entry.start.set_result(turn)
        self._evict_finished()
        return replace(turn, entry=entry)

    def add_reader(self, entry: KeyEntry) -> None:
        entry.readers += 1

    def remove_reader(self, entry: KeyEntry, *, stops: bool = True) -> None:
        """Unregister a reader. If ``stops``, a turn without readers is cancelled after GRACE_S unless a reader
        returns."""
        entry.readers -= 1
        turn = entry.turn
        if stops and turn is not None and turn.running and not entry.readers:
            asyncio.get_running_loop().call_later(GRACE_S, self._stop, entry, turn)

    async def aclose(self) -> None:
        await self._reading.cancel()
        await self._ending.wait()

    # ------------------------------------------------------------------------------------ starting or recovering a turn

    async def _begin_or_recover(
        self, key: IdempotencyKey, begin: Callable[[str], Awaitable[StartedTurn | None]], before: LiveTurn | None
    ) -> StartedTurn | None:
        """Return the turn that the database has for the key; if there is none, start one with ``begin``. ``before`` is
        the key's earlier turn, if that turn ended without an effect."""
        row = await self._rows.find(key)
        while True:
            if row is not None and row.request != key.request:
                raise key_reused()
            idle = row is None or (before is not None and row.turn == before.id)
            if row is not None and not idle and (recovered := await self._recover(key, row)) is not None:
                return recovered
            turn = new_id("turn")
            other = await self._rows.claim(key, turn, row)
            if other is None:
                return await self._begin(key, turn, begin)
            row = other

    async def _begin(
        self, key: IdempotencyKey, turn: str, begin: Callable[[str], Awaitable[StartedTurn | None]]
    ) -> StartedTurn | None:
        begun: StartedTurn | None = None
        try:
            begun = await begin(turn)
        finally:
            if begun is None:
                await self._rows.forget(key, turn)
        if begun is None:
            return None
        try:
            await self._rows.mark_begun(key, turn, begun.turn.spec.key.id, begun.facts)
        except StoreError as error:
            log.warning("the turn of an idempotency key could not be stored: %s", error)
        return begun

    async def _recover(self, key: IdempotencyKey, row: IdempotencyRow) -> StartedTurn | None:
        """Return the turn that a row names; None if that turn never started or ended without an effect. Raises
        KeyReused if the answer of the turn is no longer stored."""
        live = self._turns.get(row.turn) or await self._remote_turns.find(key.user, row.turn)
        if live is not None:
            return None if _had_no_effect(live) else StartedTurn(live, row.facts, replayed=True)
        stored = None if row.session == PRIVATE else await self._find_stored(key, row)
        if stored is not None and (begun := await self._remote_turns.find(key.user, row.turn)):
            return StartedTurn(begun, row.facts, replayed=True)
        if stored is None:
            if not row.session:
                return None
            raise answer_not_kept()
        if await self._stored_had_no_effect(stored):
            return None
        return StartedTurn(self._rebuild_turn(stored), row.facts, replayed=True)

    async def _stored_had_no_effect(self, stored: Turn) -> bool:
        """Return whether a stored turn was cut short before any tool began. Checks the stored messages, which are
        written before their calls run, because the record of a turn whose server was killed lists no calls."""
        if not _was_cut_short(stored.state, stored.reason):
            return False
        return not any(message.calls for message in await self._versions.messages(stored))

    async def _find_stored(self, key: IdempotencyKey, row: IdempotencyRow) -> Turn | None:
        until = time.monotonic() + row.began + BEGINS_WITHIN_S - self._clock()
        while True:
            stored = await self._store.turn(key.user, row.turn)
            if stored is not None or row.session or time.monotonic() > until:
                return stored
            await asyncio.sleep(POLL_S)

    def _rebuild_turn(self, stored: Turn) -> LiveTurn:
        """Return a turn whose log is filled from the stored items. If another server still runs the turn, its events
        arrive when it ends."""
        turn = LiveTurn(stored.id, TurnSpec(stored.key, TurnRequest()), EventLog(stored.id, stored.key.id))
        turn.task = self._reading.start(_replay_into(self._store, stored, turn.log), f"again {stored.id}")
        return turn

    # ------------------------------------------------------------------------------------------------ entries in memory

    def _find_entry(self, key: IdempotencyKey) -> KeyEntry | None:
        entry = self._entries.get(key.identity)
        if entry is not None and entry.turn is not None and entry.turn.owner is not None:
            # The copy of a remote turn's events ends when nobody reads it, so the turn is looked up again.
            del self._entries[key.identity]
            return None
        if entry is not None and entry.began <= self._clock() - KEPT_S and not (entry.turn and entry.turn.running):
            del self._entries[key.identity]
            return None
        return entry

    async def _check_session_exists(self, turn: LiveTurn) -> None:
        """Refuse to repeat an answer whose session was deleted. Raises KeyReused."""
        key = turn.spec.key
        if not is_private(key.id) and await self._store.info(key) is None:
            raise answer_not_kept()

    def _stop(self, entry: KeyEntry, turn: LiveTurn) -> None:
        if not turn.running or entry.readers or self._turns.get(turn.id) is not turn:
            return
        if self._publisher is not None and self._publisher.is_followed(turn):
            # A client follows the turn through another server. That server renews its subscription as long as it has
            # readers, so check again later.
            asyncio.get_running_loop().call_later(GRACE_S, self._stop, entry, turn)
        else:
            self._ending.start(self._turns.cancel(turn, LEFT))

    def _drop(self, entry: KeyEntry, error: Exception) -> None:
        if self._entries.get(entry.key.identity) is entry:
            del self._entries[entry.key.identity]
        entry.start.set_exception(error)
        # The exception is retrieved here, so that asyncio does not log it if no other request waits for this one.
        entry.start.exception()

    def _evict_finished(self) -> None:
        """Remove the oldest finished entries above the limits."""
        over = [entry for entry in self._entries.values() if entry.turn is not None and not entry.turn.running]
        size = sum(entry.turn.log.size for entry in over if entry.turn is not None)
        for entry in over:
            if len(over) <= MOST_HELD and size <= MOST_BYTES:
                return
            assert entry.turn is not None
            size -= entry.turn.log.size
            over = over[1:]
            del self._entries[entry.key.identity]


async def _replay_into(store: SessionStore, stored: Turn, log: EventLog) -> None:
    async with aclosing(replay(store, stored, 0, media=True)) as events:
        async for event in events:
            log.append(event.body)


def _was_cut_short(state: TurnState, reason: str) -> bool:
    """Return whether the turn failed, was interrupted, or was cancelled only because its client left or the server
    stopped."""
    return state in ("failed", "interrupted") or (state == "cancelled" and reason in (LEFT, STOPPING))


def _had_no_effect(turn: LiveTurn) -> bool:
    """Return whether the turn was cut short before any tool began."""
    end = turn.log.finished
    if end is None or not _was_cut_short(end.state, end.reason):
        return False
    return not any(isinstance(event.body, CallStarted | CallOffered) for event in turn.log.since(0))


def answer_not_kept() -> KeyReused:
    return KeyReused(
        "This request was answered before, but its answer is no longer stored.",
        hint="To have the request answered again, send it with another key.",
    )


def key_reused() -> KeyReused:
    return KeyReused(f"This {HEADER} was already used for another request.", hint="Use a new key for this request.")

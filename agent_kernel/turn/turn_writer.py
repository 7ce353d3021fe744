"""The writes of the turns this process runs: lease, heartbeat, order of items, and an end that is always written.

A write that was begun is ended before a cancellation is passed on, so that its outcome is known. One that failed
without telling whether it was stored (a lock, an error of the disk) is tried again, never stored twice. A closing write
that failed (a full disk) is kept and tried again before the next turn of that session and by ``settle``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from agent_kernel.core.errors import LeaseLost, SequenceConflict, SessionBusy, StoreCorrupt, StoreError, StoreFull
from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Message, Usage
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import HEARTBEAT_S, Item, Owner, SessionKey, Turn
from agent_kernel.sessions.export.jsonl_log import LiveTranscripts
from agent_kernel.sessions.redaction.redaction import Redactor
from agent_kernel.sessions.store.pending_write import PendingWrite

LONG_TEXT = 20_000
"""Characters that are searched in about the time that an event loop may be kept (2 ms)."""
AGAIN_S = (0.05, 0.5)
"""Pauses before an append is tried again. With the ten seconds that a store waits for a lock all attempts together end
well within the lease."""
T = TypeVar("T")


async def await_uncancelled(write: Awaitable[T]) -> T:
    """Awaits ``write`` to its end even if the caller is cancelled meanwhile; the cancellation follows after."""
    task = asyncio.ensure_future(write)
    stopped: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            stopped = error
    if stopped is not None:
        if not task.cancelled():
            task.exception()
        raise stopped
    return task.result()


@dataclass(frozen=True, slots=True)
class TurnEnd:
    turn: Turn
    state: TurnState
    reason: str
    usage: Usage
    record: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"state": self.state, "reason": self.reason, "usage": self.usage.to_json(), "record": dict(self.record)}


class TurnWriter:
    """``redactor`` cleans whatever is written of a turn; by default with the built-in patterns. ``transcripts`` get a
    copy of it."""

    def __init__(
        self,
        store: SessionStore,
        owner: Owner | None = None,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        redactor: Redactor | None = None,
        transcripts: LiveTranscripts | None = None,
    ) -> None:
        self.store = store
        self.owner = owner or Owner.here()
        self.heartbeat_s = heartbeat_s
        self.redactor = redactor or Redactor()
        self.transcripts = transcripts
        self._unclosed: dict[str, TurnEnd] = {}

    async def begin(self, turn: Turn) -> OpenTurn:
        """Takes the session's lease. Raises SessionBusy, SessionNotFound, StoreError."""
        await self.settle(turn.key)
        try:
            opened = await await_uncancelled(self._opened(turn))
            session = await await_uncancelled(self.store.info(turn.key))
        except asyncio.CancelledError:
            await await_uncancelled(self.end(TurnEnd(turn, "cancelled", "stopped before it began", Usage())))
            raise
        except StoreError:  # it may be open all the same, and nobody would keep its lease
            await await_uncancelled(self.end(TurnEnd(turn, "failed", "the store failed before it began", Usage())))
            raise
        return OpenTurn(self, opened, session.head if session else 0)

    async def _opened(self, turn: Turn) -> Turn:
        """A session that a dead server left busy is freed first, so that nobody waits for the next recovery."""
        try:
            return await self.store.open_turn(turn, self.owner)
        except SessionBusy:
            closed = await self.store.recover()
            if all(other.key != turn.key for other in closed):
                raise
        return await self.store.open_turn(turn, self.owner)

    async def end(self, ending: TurnEnd) -> StoreError | None:
        """Closes the turn; an error of the store is returned, and the ending kept for ``settle``."""
        try:
            await self.store.close_turn(
                ending.turn, self.owner, ending.state, ending.reason, ending.usage, record=ending.record
            )
        except StoreError as error:
            self._unclosed[ending.turn.id] = ending
            return error
        self._unclosed.pop(ending.turn.id, None)
        if self.transcripts is not None:
            await self.transcripts.ended(ending.turn, ending.to_json())
        return None

    async def written(
        self, append: Callable[[], Awaitable[list[Item]]], pending: Callable[[], PendingWrite]
    ) -> list[Item]:
        """What ``append`` stores, once. Raises what it raises; StoreError when it failed to the end."""
        unknown: StoreError | None = None
        for pause in (*AGAIN_S, None):
            try:
                return await append()
            except (StoreFull, StoreCorrupt):
                raise
            except StoreError as error:
                unknown = error
            except SequenceConflict:
                found = await pending().stored(self.store) if unknown is not None else None
                if found is None:
                    raise
                return found
            if pause is None:
                raise unknown
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def clean(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages as they may be kept; long ones are searched off the event loop."""
        if not self.redactor.is_on:
            return messages
        if sum(len(message.text) for message in messages) < LONG_TEXT:
            return self._cleaned(messages)
        return await asyncio.to_thread(self._cleaned, messages)

    async def copy(self, key: SessionKey, items: Sequence[Item]) -> None:
        """Into the transcript, if there is one."""
        if self.transcripts is not None:
            await self.transcripts.entries(key, items)

    def _cleaned(self, messages: Sequence[Message]) -> list[Message]:
        return [self.redactor.message(message) for message in messages]

    async def settle(self, key: SessionKey | None = None) -> None:
        """Tries again to write the endings that could not be written (of one session, or all)."""
        for ending in list(self._unclosed.values()):
            if key is None or ending.turn.key == key:
                await await_uncancelled(self.end(ending))


class OpenTurn:
    """The writing side of one open turn; ``head`` is the seq of the newest item.

    ``async with`` keeps its lease: when that is lost, the body is cancelled and LeaseLost raised.
    """

    def __init__(self, ledger: TurnWriter, turn: Turn, head: int) -> None:
        self.turn = turn
        self._ledger = ledger
        self.head = head
        self._lock = asyncio.Lock()
        self._beat: asyncio.Task[None] | None = None
        self._lost = False

    async def append(self, messages: Sequence[Message]) -> list[Item]:
        async with self._lock:
            return await await_uncancelled(self._append(messages))

    async def _append(self, messages: Sequence[Message]) -> list[Item]:
        clean = await self._ledger.clean(messages)
        store, owner = self._ledger.store, self._ledger.owner
        items = await self._ledger.written(
            lambda: store.append(self.turn, owner, clean, self.head), lambda: self._pending(clean)
        )
        self.head += len(items)
        await self._ledger.copy(self.turn.key, items)
        return items

    def _pending(self, messages: Sequence[Message]) -> PendingWrite:
        return PendingWrite.of(self.turn.key, self.turn.id, self.head, messages)

    async def append_at(
        self, messages: Sequence[Message], behind: int | None, earlier: Sequence[Sequence[Message]] = ()
    ) -> list[Item]:
        """The first items, behind item ``behind`` (None: at the end of the current branch), after the turns
        ``earlier``."""
        async with self._lock:
            return await await_uncancelled(self._append_at(messages, behind, earlier))

    async def _append_at(
        self, messages: Sequence[Message], behind: int | None, earlier: Sequence[Sequence[Message]]
    ) -> list[Item]:
        store, owner = self._ledger.store, self._ledger.owner
        clean, before = await self._ledger.clean(messages), [await self._ledger.clean(batch) for batch in earlier]
        stored = await self._ledger.written(
            lambda: store.append_at(self.turn, owner, clean, self.head, behind=behind, earlier=before),
            lambda: self._pending([*chain(*before), *clean]),
        )
        items = stored[len(stored) - len(clean) :]
        self.head += sum(map(len, before)) + len(items)
        await self._ledger.copy(self.turn.key, stored)
        return items

    async def close(
        self, state: TurnState, reason: str, usage: Usage, record: Mapping[str, Any] | None = None
    ) -> StoreError | None:
        clean = self._ledger.redactor.text(reason)
        return await await_uncancelled(self._ledger.end(TurnEnd(self.turn, state, clean, usage, record or {})))

    async def __aenter__(self) -> OpenTurn:
        body = asyncio.current_task()
        assert body is not None, "a turn runs in a task"
        self._beat = asyncio.create_task(self._keep(body), name=f"lease of {self.turn.id}")
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._beat is not None:
            self._beat.cancel()
        if self._lost and isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            raise LeaseLost("Another server has taken over this turn.", hint="Ask again.") from error

    async def _keep(self, body: asyncio.Task[object]) -> None:
        while True:
            await asyncio.sleep(self._ledger.heartbeat_s)
            try:
                alive = await self._ledger.store.heartbeat(self.turn, self._ledger.owner)
            except StoreError:
                continue  # a store that can not be written now may be later; recovery decides after LEASE_S
            if not alive:
                self._lost = True
                body.cancel("lease lost")
                return

"""Writes the turns of this process: holds their leases, renews these by heartbeats, keeps items in order, and always
stores how a turn ended.

If a write is cancelled, the write is completed first, so that its outcome is known. If a write fails and its outcome is
unknown (because of a lock or a disk error), it is retried, and nothing is stored twice. If the closing write of a turn
fails (because the disk is full), it is kept and retried before the next turn of that session and by ``settle``.
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
from agent_kernel.core.shielded_await import await_uncancelled
from agent_kernel.sessions.export.jsonl_log import LiveTranscripts
from agent_kernel.sessions.redaction.redaction import Redactor
from agent_kernel.sessions.store.pending_write import PendingWrite

LONG_TEXT = 20_000
"""Characters that the redactor can search without blocking the event loop for more than about 2 ms."""
AGAIN_S = (0.05, 0.5)
"""Pauses in seconds between attempts to append. All attempts, each with the ten seconds that a store waits for a lock,
end well within the lease."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The end of a turn, as the arguments of the store's ``close_turn``."""

    turn: Turn
    state: TurnState
    reason: str
    usage: Usage
    record: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"state": self.state, "reason": self.reason, "usage": self.usage.to_json(), "record": dict(self.record)}


class TurnWriter:
    """Opens and closes turns for one owner, which is this process.

    ``redactor`` removes secrets from everything that is written; the default uses the built-in patterns.
    ``transcripts`` receives a copy of the items for the live transcripts.
    """

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
        """Open a turn and take the session's lease. Raises SessionBusy, SessionNotFound, StoreError."""
        await self.settle(turn.key)
        try:
            opened = await await_uncancelled(self._open(turn))
            session = await await_uncancelled(self.store.info(turn.key))
        except asyncio.CancelledError:
            await await_uncancelled(self.end(TurnEnd(turn, "cancelled", "stopped before it began", Usage())))
            raise
        except StoreError:  # the turn may be open anyway, and nobody would renew its lease
            await await_uncancelled(self.end(TurnEnd(turn, "failed", "the store failed before it began", Usage())))
            raise
        return OpenTurn(self, opened, session.head if session else 0)

    async def _open(self, turn: Turn) -> Turn:
        """Open the turn in the store. If a crashed server has left the session busy, this method frees the session
        first, so that the caller need not wait for the next recovery."""
        try:
            return await self.store.open_turn(turn, self.owner)
        except SessionBusy:
            closed = await self.store.recover()
            if all(other.key != turn.key for other in closed):
                raise
        return await self.store.open_turn(turn, self.owner)

    async def end(self, ending: TurnEnd) -> StoreError | None:
        """Close the turn. An error of the store is returned and not raised, and ``settle`` tries to close the turn
        again later."""
        try:
            await self.store.close_turn(
                ending.turn, self.owner, ending.state, ending.reason, ending.usage, record=ending.record
            )
        except StoreError as error:
            self._unclosed[ending.turn.id] = ending
            return error
        self._unclosed.pop(ending.turn.id, None)
        if self.transcripts is not None:
            await self.transcripts.append_end(ending.turn, ending.to_json())
        return None

    async def append_once(
        self, append: Callable[[], Awaitable[list[Item]]], pending: Callable[[], PendingWrite]
    ) -> list[Item]:
        """Call ``append`` until its items are stored exactly once, and return them. If a call ends with an unknown
        outcome, it is repeated; ``pending`` then tells whether the store has the items already. Raises the errors of
        ``append``, and StoreError if every attempt failed."""
        unknown: StoreError | None = None
        for pause in (*AGAIN_S, None):
            try:
                return await append()
            except (StoreFull, StoreCorrupt):
                raise
            except StoreError as error:
                unknown = error
            except SequenceConflict:
                stored = await pending().stored(self.store) if unknown is not None else None
                if stored is None:
                    raise
                return stored
            if pause is None:
                raise unknown
            await asyncio.sleep(pause)
        raise AssertionError("internal error: the retries ended without a result")

    async def clean(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages in the form in which they may be stored; long ones are searched in a thread."""
        if not self.redactor.is_on:
            return messages
        if sum(len(message.text) for message in messages) < LONG_TEXT:
            return self._clean_all(messages)
        return await asyncio.to_thread(self._clean_all, messages)

    async def copy(self, key: SessionKey, items: Sequence[Item]) -> None:
        """Append items to the live transcript, if there is one."""
        if self.transcripts is not None:
            await self.transcripts.append_items(key, items)

    def _clean_all(self, messages: Sequence[Message]) -> list[Message]:
        return [self.redactor.message(message) for message in messages]

    async def settle(self, key: SessionKey | None = None) -> None:
        """Retry the closing writes that failed, of one session or of all."""
        for ending in list(self._unclosed.values()):
            if key is None or ending.turn.key == key:
                await await_uncancelled(self.end(ending))


class OpenTurn:
    """An open turn, to which items can be appended; ``head`` is the sequence number of the session's newest item.

    ``async with`` renews the lease of the turn. If the lease is lost, the body is cancelled and LeaseLost is raised.
    """

    def __init__(self, writer: TurnWriter, turn: Turn, head: int) -> None:
        self.turn = turn
        self._writer = writer
        self.head = head
        self._lock = asyncio.Lock()
        self._beat: asyncio.Task[None] | None = None
        self._lost = False

    async def append(
        self, messages: Sequence[Message], behind: int | None = None, earlier: Sequence[Sequence[Message]] = ()
    ) -> list[Item]:
        """Append messages and return their items. The first messages of a turn may be placed after the item with the
        seq ``behind``, which may be on another branch, and after the turns ``earlier``, which are stored before
        them."""
        async with self._lock:
            return await await_uncancelled(self._append(messages, behind, earlier))

    async def _append(
        self, messages: Sequence[Message], behind: int | None, earlier: Sequence[Sequence[Message]]
    ) -> list[Item]:
        store, owner = self._writer.store, self._writer.owner
        clean, before = await self._writer.clean(messages), [await self._writer.clean(batch) for batch in earlier]

        def write() -> Awaitable[list[Item]]:
            if behind is None and not earlier:
                return store.append(self.turn, owner, clean, self.head)
            return store.append_at(self.turn, owner, clean, self.head, behind=behind, earlier=before)

        def pending() -> PendingWrite:
            return PendingWrite.of(self.turn.key, self.turn.id, self.head, [*chain(*before), *clean])

        stored = await self._writer.append_once(write, pending)
        items = stored[len(stored) - len(clean) :]
        self.head += sum(map(len, before)) + len(items)
        await self._writer.copy(self.turn.key, stored)
        return items

    async def close(
        self, state: TurnState, reason: str, usage: Usage, record: Mapping[str, Any] | None = None
    ) -> StoreError | None:
        clean = self._writer.redactor.text(reason)
        return await await_uncancelled(self._writer.end(TurnEnd(self.turn, state, clean, usage, record or {})))

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
            raise LeaseLost("Another server has taken over this turn.", hint="Send the prompt again.") from error

    async def _keep(self, body: asyncio.Task[object]) -> None:
        while True:
            await asyncio.sleep(self._writer.heartbeat_s)
            try:
                alive = await self._writer.store.heartbeat(self.turn, self._writer.owner)
            except StoreError:
                continue  # the store may be writable again later; recovery decides after LEASE_S
            if not alive:
                self._lost = True
                body.cancel("lease lost")
                return

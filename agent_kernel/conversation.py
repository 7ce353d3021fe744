"""What a turn continues: the messages of earlier turns, and what is said now. Reads the store, writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_kernel.messages import Message, user
from agent_kernel.request import TurnRequest
from agent_kernel.sessions.model import SessionKey
from agent_kernel.sessions.store import SessionStore

LOST = "The kernel is another one than in the last turn: variables defined earlier are gone."
HISTORY_ITEMS = 1_000
HISTORY_STEP = 500


@dataclass(frozen=True, slots=True)
class Prepared:
    """``history``: earlier messages as the model sees them; ``said``: what this turn begins with, to be stored.
    ``lost``: the kernel is another one than in the last turn."""

    history: Sequence[Message]
    said: Sequence[Message]
    lost: bool = False


class Conversation:
    def __init__(self, store: SessionStore, key: SessionKey) -> None:
        self._store = store
        self._key = key

    async def prepare(self, request: TurnRequest, head: int) -> Prepared:
        """For a turn that was opened at item ``head``."""
        lost = await self._kernel_changed(request.epoch)
        return Prepared(await self._earlier(head), _said(request, lost), lost)

    async def _earlier(self, head: int) -> list[Message]:
        """Messages of earlier turns. The window moves in steps, so that the beginning of the prompt stays the same."""
        limit = HISTORY_ITEMS + head % HISTORY_STEP
        return [item.message for item in await self._store.latest(self._key, limit, failed=False)]

    async def _kernel_changed(self, epoch: str) -> bool:
        """``epoch`` begins here: the newest earlier turn from a kernel came from another one."""
        earlier = [turn.epoch for turn in await self._store.turns(self._key, 20) if turn.epoch and turn.state != "open"]
        return bool(epoch and earlier and earlier[-1] != epoch)


def _said(request: TurnRequest, lost: bool) -> list[Message]:
    """The new user message, after the hidden context of this turn if there is any."""
    notes = [f"{note.title}: {note.text}" if note.title else note.text for note in request.notes]
    if lost:
        notes.insert(0, LOST)
    hidden = [user("\n".join(notes), hidden=True)] if notes else []
    return [*hidden, user(request.prompt, request.media)]

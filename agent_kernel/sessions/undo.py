"""Removes the newest turn of the current branch."""

from __future__ import annotations

from dataclasses import dataclass

from agent_kernel.core.errors import Conflict
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Item, SessionKey


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The turn that ``undo`` removed: its id and its number of items. ``prompt`` is the text of the user message, and
    ``ran`` are the names of the tools that ran in the turn. The effects of these calls (variables, files, sent data)
    remain."""

    turn: str
    items: int
    prompt: str
    ran: tuple[str, ...]


async def undo(store: SessionStore, key: SessionKey) -> UndoResult | None:
    """Remove the newest turn from the current branch, and return a description of it; None if there is no turn. Other
    branches that contain the turn keep it. Raises SessionBusy, SessionNotFound, or Conflict if the session changed
    meanwhile."""
    tail = await _newest_turn_items(store, key)
    if not tail:
        return None
    if not await store.rewind(key, tail):
        raise Conflict(
            "The session has changed meanwhile. Nothing was undone.", hint="Read the session again, then undo."
        )
    prompts = [item.message.text for item in tail if item.message.role == "user" and not item.message.hidden]
    ran = tuple(
        item.message.name or "a tool"
        for item in tail
        if item.message.role == "tool" and item.message.status != "denied"
    )
    return UndoResult(tail[0].turn, len(tail), prompts[0] if prompts else "", ran)


async def _newest_turn_items(store: SessionStore, key: SessionKey) -> list[Item]:
    """Return all items of the newest turn of the current branch. It reads the newest items, and doubles their number
    until they include the whole turn."""
    session, count = await store.info(key), 16
    while session is not None:
        newest = await store.latest(key, count)
        turn_items = [item for item in newest if item.turn == newest[-1].turn]
        if len(turn_items) < len(newest) or count > session.head:
            return turn_items
        count *= 4
    return []

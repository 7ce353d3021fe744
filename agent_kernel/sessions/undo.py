"""The newest turn of the current branch, and taking it back."""

from __future__ import annotations

from dataclasses import dataclass

from agent_kernel.core.errors import Conflict
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Item, SessionKey


@dataclass(frozen=True, slots=True)
class Undone:
    """``prompt`` is what the person had said; ``ran`` names the calls that ran, whose effects stay: variables, files,
    what was sent elsewhere. A store knows nothing of them."""

    turn: str
    items: int
    prompt: str
    ran: tuple[str, ...]


async def undo(store: SessionStore, key: SessionKey) -> Undone | None:
    """Removes the items of the newest turn from the current branch; other branches that show it keep it. None when
    there is none. Raises SessionBusy, SessionNotFound, Conflict when the session changed meanwhile."""
    tail = await _tail(store, key)
    if not tail:
        return None
    if not await store.rewind(key, tail):
        raise Conflict("The session has changed meanwhile; nothing was taken back.", hint="Look at it again.")
    said = [item.message.text for item in tail if item.message.role == "user" and not item.message.hidden]
    ran = tuple(
        item.message.name or "a tool"
        for item in tail
        if item.message.role == "tool" and item.message.status != "denied"
    )
    return Undone(tail[0].turn, len(tail), said[0] if said else "", ran)


async def _tail(store: SessionStore, key: SessionKey) -> list[Item]:
    """The newest items that are of one turn."""
    session, wanted = await store.info(key), 16
    while session is not None:
        newest = await store.latest(key, wanted)
        mine = [item for item in newest if item.turn == newest[-1].turn]
        if len(mine) < len(newest) or wanted > session.head:
            return mine
        wanted *= 4
    return []

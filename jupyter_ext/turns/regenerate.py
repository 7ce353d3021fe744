"""What a turn is asked that takes the place of another and says nothing itself: the same again."""

from __future__ import annotations

from dataclasses import replace

from agent_kernel.core.errors import TurnNotFound
from agent_kernel.core.messages import Media, Message
from agent_kernel.core.request import Note, TurnRequest
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.permissions.policy import STRICTNESS, strictest
from agent_kernel.turn.history import LOST


async def asked_again(store: SessionStore, key: SessionKey, request: TurnRequest, replaces: str) -> TurnRequest:
    """With prompt, pictures, files and hidden notes of the turn ``replaces``, and no freer than it was, unless the
    request has words of its own. Raises TurnNotFound where the session has no such turn, or one that was asked
    nothing."""
    turn = await store.turn(key.namespace, replaces)
    if turn is None or turn.key != key:
        raise TurnNotFound("There is no such turn in this session.")
    if request.prompt or request.messages:
        return request
    said = [item.message for item in await store.of_turn(turn) if item.message.role == "user"]
    asked = next((message for message in said if not message.hidden), None)
    if asked is None or not (asked.text or asked.media):
        raise TurnNotFound("What this turn was asked is not kept.", hint="Ask again in words.")
    media = [await _filled(store, key, medium) for medium in asked.media]
    notes = tuple(Note("", text) for message in said if message.hidden and (text := _lasting(message)))
    permissions = (request.permission, turn.record.get("permission"))
    permission = strictest(*(one for one in permissions if one in STRICTNESS))
    return replace(
        request,
        prompt=asked.text,
        media=tuple(media),
        notes=(*notes, *request.notes),
        inputs=request.inputs or tuple(str(id) for id in turn.record.get("inputs", ())),
        permission=permission,
    )


async def _filled(store: SessionStore, key: SessionKey, medium: Media) -> Media:
    return replace(medium, data=await store.blob(key, medium.hash))


def _lasting(message: Message) -> str:
    """Without what was true of the kernel at that time."""
    return message.text.removeprefix(LOST).strip()

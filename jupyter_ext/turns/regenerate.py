"""Builds the request for a turn that replaces an earlier turn and has the same prompt."""

from __future__ import annotations

from dataclasses import replace

from agent_kernel.core.errors import TurnNotFound
from agent_kernel.core.messages import Message
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.core.turn_request import Note, TurnRequest
from agent_kernel.permissions.policy import STRICTNESS, strictest
from agent_kernel.turn.history import LOST


async def repeat_request(store: SessionStore, key: SessionKey, request: TurnRequest, replaces: str) -> TurnRequest:
    """Return ``request`` with the prompt, media, files and hidden notes of the turn ``replaces``. A request that has a
    prompt or messages of its own is returned unchanged.

    The permission is the stricter one of the two turns. Raises TurnNotFound if the session has no such turn or its
    prompt is not stored.
    """
    turn = await store.turn(key.namespace, replaces)
    if turn is None or turn.key != key:
        raise TurnNotFound("This session has no turn with this id.")
    if request.prompt or request.messages:
        return request
    messages = [item.message for item in await store.of_turn(turn) if item.message.role == "user"]
    original = next((message for message in messages if not message.hidden), None)
    if original is None or not (original.text or original.media):
        raise TurnNotFound("The prompt of this turn is not stored.", hint="Send the prompt again.")
    media = [replace(medium, data=await store.blob(key, medium.hash)) for medium in original.media]
    notes = tuple(Note("", text) for message in messages if message.hidden and (text := _without_kernel_state(message)))
    permissions = (request.permission, turn.record.get("permission"))
    permission = strictest(*(permission for permission in permissions if permission in STRICTNESS))
    return replace(
        request,
        prompt=original.text,
        media=tuple(media),
        notes=(*notes, *request.notes),
        inputs=request.inputs or tuple(str(id) for id in turn.record.get("inputs", ())),
        permission=permission,
    )


def _without_kernel_state(message: Message) -> str:
    """Return the text of the message without the note about the kernel's state, which described only that moment."""
    return message.text.removeprefix(LOST).strip()

"""Finds the conversation that a request for a response continues: the response that the request names, the response of
the items that it refers to, or the conversation that it contains."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent_kernel.core.errors import Conflict, InvalidRequest
from agent_kernel.core.messages import Media, Message, Part
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions import history_merge
from jupyter_ext.api.dialects.openai_content import check_length
from jupyter_ext.api.responses.input_items import AnyItem, FunctionCallItem, ReferenceItem, characters, items_of
from jupyter_ext.api.responses.live_responses import LiveResponses
from jupyter_ext.api.responses.request import ResponsesBody
from jupyter_ext.api.responses.response_object import ENDED, stem_of
from jupyter_ext.api.responses.store import ResponseOwner, StoredResponse
from jupyter_ext.auth.callers import Caller, subject


@dataclass(frozen=True, slots=True)
class Continuation:
    """The session that a request continues, and the part of its input that is new.

    ``items`` are the input with references resolved, and without calls of functions that the session has. ``session``
    is the id of the session to continue, after the turn ``after`` if that is not empty. ``named``: the client named the
    session; otherwise the session was found through one of the items. ``names`` maps ids of calls that were handed to
    the client to the names of their functions.
    """

    items: Sequence[AnyItem]
    session: str = ""
    after: str = ""
    named: bool = False
    names: Mapping[str, str] = field(default_factory=dict)


def owner_of(caller: Caller) -> ResponseOwner:
    return ResponseOwner(caller.namespace, subject(caller))


async def find_continuation(responses: LiveResponses, caller: Caller, body: ResponsesBody) -> Continuation:
    """Return the continuation of a request. Raises InvalidRequest for ids that do not exist or contradict each other,
    and Conflict if the response to continue is still running."""
    owner = owner_of(caller)
    items = await _resolve(responses, owner, body.items)
    if body.previous_response_id:
        previous = await _previous(responses, owner, body)
        names = _called_functions(previous)
        remaining = [item for item in items if not (isinstance(item, FunctionCallItem) and item.call_id in names)]
        return Continuation(remaining, previous.facts.session, previous.turn, named=True, names=names)
    if session := body.conversation_id or body.session_id:
        return Continuation(items, session, named=True)
    newest = await _newest_response(responses, owner, body.items) if body.is_stored else None
    return Continuation(items) if newest is None else Continuation(items, newest.facts.session)


async def _previous(responses: LiveResponses, owner: ResponseOwner, body: ResponsesBody) -> StoredResponse:
    id = body.previous_response_id or ""
    response = await responses.find(owner, id)
    if response is None:
        raise InvalidRequest(
            f"Previous response with id {id[:100]!r} not found.",
            details={"param": "previous_response_id", "code": "previous_response_not_found"},
        )
    if body.session_id and body.session_id != response.facts.session:
        raise InvalidRequest(
            "The previous response belongs to a different session than session_id.", details={"param": "session_id"}
        )
    if (resource := await responses.resource(response))["status"] not in ENDED:
        raise Conflict("The previous response has not ended yet.", hint="Wait for it, or cancel it.")
    turn = await responses.sessions.turn(owner.namespace, response.turn)
    if turn is not None and turn.state == "failed":
        raise InvalidRequest(
            f"Previous response with id {id[:100]!r} has failed: it cannot be continued.",
            hint="Continue from the response before it, and send its input again.",
            details={"param": "previous_response_id"},
        )
    return dataclasses.replace(response, body=resource)


def _called_functions(response: StoredResponse) -> dict[str, str]:
    calls = [item for item in (response.body or {}).get("output", ()) if item["type"] == "function_call"]
    return {call["call_id"]: ".".join(filter(None, (call.get("namespace"), call["name"]))) for call in calls}


async def _resolve(responses: LiveResponses, owner: ResponseOwner, items: Sequence[AnyItem]) -> list[AnyItem]:
    """Return the items with references replaced by the items that they refer to. Each response is read once, and each
    item is included once."""
    references = Counter(item.id for item in items if isinstance(item, ReferenceItem))
    if not references:
        return list(items)
    of: dict[str, list[str]] = {}
    for id in references:
        of.setdefault(stem_of(id), []).append(id)
    by_id: dict[str, AnyItem] = {}
    length = 0
    for stem, ids in of.items():
        response = await responses.find(owner, stem) if stem else None
        referenced = response.items(ids) if response is not None else {}
        for id in ids:
            if id not in referenced:
                raise InvalidRequest(
                    f"Item with id {id[:100]!r} not found.",
                    hint="Send the complete items of responses that were not stored, or were deleted.",
                    details={"param": "input", "code": "item_not_found"},
                )
            (by_id[id],) = items_of([referenced[id]])
            length += references[id] * characters(by_id[id])
            check_length(length, "input")
    return [by_id[item.id] if isinstance(item, ReferenceItem) else item for item in items]


async def _newest_response(
    responses: LiveResponses, owner: ResponseOwner, items: Sequence[AnyItem]
) -> StoredResponse | None:
    """Return the response that produced the newest of those items in the input that come from this server; None if no
    item comes from this server. A client that keeps its own conversation sends items of earlier responses back."""
    for id in dict.fromkeys(stem_of(getattr(item, "id", None) or "") for item in reversed(items)):
        if id and (response := await responses.find(owner, id)) is not None:
            return response
    return None


async def carry_messages(store: SessionStore, key: SessionKey, turn: str, messages: Sequence[Message]) -> list[Message]:
    """Return the conversation of the session up to ``turn``, followed by ``messages``. Images and videos have their
    bytes, so that the result can be sent to another session. The client's instructions stay at the beginning. Raises
    InvalidRequest if the turn no longer exists."""
    instructions, others = history_merge.split_instructions(messages)
    whole = await store.whole(key)
    before = whole.up_to(turn) if whole is not None else None
    if whole is None or before is None:
        raise InvalidRequest("The previous response is not in its session any more.")
    failed = {one.id for one in whole.turns if one.state == "failed"}
    stored = [item.message for item in before if item.turn not in failed and not item.message.hidden]
    spliced = await asyncio.to_thread(history_merge.splice_append, stored, others)
    carried = [await _with_bytes(store, key, message) for message in stored[: spliced.kept]]
    return [*instructions, *carried, *spliced.new]


async def _with_bytes(store: SessionStore, key: SessionKey, message: Message) -> Message:
    async def with_data(part: Part) -> Part:
        if not isinstance(part, Media) or part.data is not None:
            return part
        return dataclasses.replace(part, data=await store.blob(key, part.hash))

    return dataclasses.replace(message, parts=tuple([await with_data(part) for part in message.parts]))

"""Converts a list of messages without sessions, turns or times, as other programs store it, to a session. The functions
have no side effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message
from agent_kernel.core.session import Item, Session, SessionKey, Turn
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions import call_pairs
from agent_kernel.sessions.export.formats.json_reader import Fields

IMPORTED = "imported"
"""Id of an imported session whose document contains no id."""


def transcript_from_messages(
    messages: Sequence[tuple[Fields, Message]],
    blobs: Mapping[str, bytes],
    namespace: str,
    left_out: dict[str, int],
    *,
    strict: bool,
) -> Transcript:
    """Build a transcript from messages, each with its position in the document; a user message begins a turn.
    ``left_out`` counts what is not imported, by kind.

    With ``strict``, raises InvalidRequest unless every tool result names its call and every call has a result. Without
    it, a result that names no call belongs to the next call without a result, and is left out if there is none; a call
    without a result counts as interrupted.
    """
    key = SessionKey(namespace, IMPORTED)
    turns: list[Turn] = []
    items: list[Item] = []
    whole = _strict(messages) if strict else _lenient([message for _, message in messages], left_out)
    for ordinal, group in enumerate(_turns(whole), start=1):
        turn = Turn(f"turn-{ordinal}", key, ordinal, "committed", opened=0.0, closed=0.0, since=len(items))
        turns.append(turn)
        items += [Item(len(items) + at, turn.id, message, 0.0) for at, message in enumerate(group, start=1)]
    session = Session(key, "", 0.0, 0.0, len(items), 0, len(turns))
    return Transcript(session, tuple(turns), tuple(items), blobs=blobs, left_out=left_out)


def visible_messages(transcript: Transcript, branch: str | None, left_out: dict[str, int]) -> Iterator[Message]:
    """Yield the messages of a branch that a model would see: without hidden messages and without failed or running
    turns. A call is never separated from its result, since both belong to one turn. ``left_out`` counts the other
    messages."""
    turns, items = transcript.select_branch(branch)
    visible_turn_ids = {turn.id for turn in turns if turn.state not in ("failed", "open")}
    for item in items:
        if item.message.hidden:
            _count(left_out, "hidden")
        elif item.turn not in visible_turn_ids:
            _count(left_out, "of failed turns")
        else:
            yield item.message


def message_to_json(message: Message) -> dict[str, Any]:
    """Return the message as JSON, without the fields ``hidden`` and ``extra``, because mistral.rs can read only texts
    and lists of objects as values."""
    return {name: value for name, value in message.to_json().items() if name not in ("hidden", "extra")}


def _count(left_out: dict[str, int], kind: str) -> None:
    left_out[kind] = left_out.get(kind, 0) + 1


def _turns(messages: Iterator[Message]) -> Iterator[list[Message]]:
    turn: list[Message] = []
    for message in messages:
        if message.role == "user" and any(earlier.role != "system" for earlier in turn):
            yield turn
            turn = []
        turn.append(message)
    if turn:
        yield turn


def _strict(messages: Sequence[tuple[Fields, Message]]) -> Iterator[Message]:
    waiting: dict[str, str] = {}
    place: Fields | None = None
    for place, message in messages:
        if message.role == "tool":
            name = message.name or waiting.get(message.call_id or "")
            complete = replace(message, name=name, status=message.status or "success", calls=())
        else:
            complete = replace(message, call_id=None)
        waiting = pending_calls(place, waiting, complete)
        yield complete
    if waiting and place is not None:
        place.refuse(f"the call {next(iter(waiting))[:80]!r} has no result")


def pending_calls(place: Fields, waiting: Mapping[str, str], message: Message) -> dict[str, str]:
    """Return the calls that have no result after this message, as ``call_pairs.pending_calls`` does. ``waiting`` are
    the calls that had no result before it. Error messages name the position ``place``."""
    try:
        return call_pairs.pending_calls(waiting, [message])
    except InvalidRequest as error:
        place.refuse(error.message.rstrip("."))


def _lenient(messages: Sequence[Message], left_out: dict[str, int]) -> Iterator[Message]:
    waiting: dict[str, str] = {}
    for message in messages:
        if message.role == "tool":
            id = message.call_id if message.call_id in waiting else next(iter(waiting), None)
            if id is None:
                _count(left_out, "results")
                continue
            name = waiting.pop(id)
            yield replace(message, call_id=id, name=message.name or name, status=message.status or "success", calls=())
            continue
        yield from call_pairs.interrupted_results(waiting, "")
        with_ids = _with_ids(message) if message.role == "assistant" else replace(message, calls=())
        waiting = {call.id: call.name for call in with_ids.calls}
        yield replace(with_ids, call_id=None)
    yield from call_pairs.interrupted_results(waiting, "")


def _with_ids(message: Message) -> Message:
    ids = [call.id for call in message.calls]
    if all(ids) and len(set(ids)) == len(ids):
        return message
    return replace(message, calls=tuple(replace(call, id=f"call-{at}") for at, call in enumerate(message.calls)))

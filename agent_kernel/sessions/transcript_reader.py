"""Reads what ``transcript`` writes, and mistral.rs's serialized sessions, from bytes nobody vouches for. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast, get_args

from agent_kernel.events import TurnState
from agent_kernel.messages import Media, Message, Part, Role, Status, Text, ToolCall, parse_arguments
from agent_kernel.sessions import pairs
from agent_kernel.sessions.fields import Fields, loads
from agent_kernel.sessions.model import Item, Session, SessionKey, Turn, valid_id

FORMAT = 1
PNG = "image/png"
IMPORTED = "imported"
_HASH = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class Read:
    session: Session
    turns: tuple[Turn, ...]
    items: tuple[Item, ...]
    blobs: Mapping[str, bytes]
    left_out: Mapping[str, int]


def read(document: bytes, namespace: str, *, max_bytes: int, max_depth: int) -> Read:
    fields = loads(document, max_bytes, max_depth)
    images = _Images(fields)
    messages = [_message(_unwrapped(body), images) for body in fields.each("messages")]
    images.all_used(fields)
    if fields.child("agent_kernel").value is None:
        return _foreign(messages, images.blobs, namespace, _left_out(fields))
    return _own(fields.child("agent_kernel"), messages, images.blobs, namespace)


# ----------------------------------------------------------------------------------------------- our own facts


def _own(own: Fields, messages: Sequence[Message], images: dict[str, bytes], namespace: str) -> Read:
    if own.get("format", int) != FORMAT:
        own.refuse(f"format {own.get('format', int)} is not {FORMAT}: another version of agent-kernel wrote this")
    session = _session(own.child("session"), namespace)
    turns = tuple(_turn(turn, session.key) for turn in own.each("turns"))
    facts = list(own.each("items"))
    if len(facts) != len(messages):
        own.refuse(f"{len(facts)} items do not go with {len(messages)} messages")
    items = tuple(_item(fact, message) for fact, message in zip(facts, messages, strict=True))
    _check_order(own, session, turns, items)
    _check_pairs(own, turns, items)
    return Read(session, turns, items, images | _blobs(own, items), {})


def _session(body: Fields, namespace: str) -> Session:
    return Session(
        SessionKey(namespace, body.get("id", str)),
        body.get("title", str),
        body.get("created", float),
        body.get("updated", float),
        body.get("head", int),
        body.get("revision", int),
        body.get("turns", int),
    )


def _turn(body: Fields, key: SessionKey) -> Turn:
    state = body.get("state", str)
    if state not in get_args(TurnState):
        body.refuse(f"no state {state!r}")
    return Turn(
        valid_id(body.get("id", str), "turn id"),
        key,
        body.get("ordinal", int),
        cast(TurnState, state),
        reason=body.get("reason", str, ""),
        cell=body.get("cell", str, ""),
        epoch=body.get("epoch", str, ""),
        where=body.get("where", str, ""),
        model=body.get("model", str, ""),
        opened=body.get("opened", float),
        closed=None if body.child("closed").value is None else body.get("closed", float),
        usage={name: _number(value) for name, value in body.items("usage")},
        record=body.get("record", dict, {}),
        since=body.get("since", int, 0),
    )


def _number(field: Fields) -> float:
    if type(field.value) not in (int, float):
        field.refuse("should be a number")
    return cast(float, field.value)


def _item(body: Fields, message: Message) -> Item:
    said = replace(message, hidden=body.get("hidden", bool, False), extra=body.get("extra", dict, {}))
    return Item(body.get("seq", int), body.get("turn", str), said, body.get("time", float))


def _check_order(own: Fields, session: Session, turns: Sequence[Turn], items: Sequence[Item]) -> None:
    """Items are numbered without gaps, turns follow each other, and an item is of a turn that is there."""
    place = {turn.id: turn.ordinal for turn in turns}
    if (len(turns), len(items)) != (session.turns, session.head):
        own.refuse("the session counts other turns or items than there are")
    if [turn.ordinal for turn in turns] != list(range(1, len(turns) + 1)) or len(place) != len(turns):
        own.refuse("turns are not numbered from 1, or an id is used twice")
    if [item.seq for item in items] != list(range(1, len(items) + 1)):
        own.refuse("items are not numbered from 1")
    ordinals = [place.get(item.turn, 0) for item in items]
    if 0 in ordinals or ordinals != sorted(ordinals):
        own.refuse("an item is of no turn, or of one that another had followed")
    if any(turn.state == "open" for turn in turns[:-1]):
        own.refuse("a turn is open although another followed")


def _check_pairs(own: Fields, turns: Sequence[Turn], items: Sequence[Item]) -> None:
    is_open = {turn.id for turn in turns if turn.state == "open"}
    for turn, group in groupby(items, key=lambda item: item.turn):
        waiting = pairs.unanswered({}, [item.message for item in group])
        if waiting and turn not in is_open:
            own.refuse(f"a call of turn {turn!r} has no result")


def _blobs(own: Fields, items: Sequence[Item]) -> dict[str, bytes]:
    """Media other than PNG that stand in the document; only those that an item names."""
    named = {medium.hash: medium for item in items for medium in item.message.media}
    inline = {digest: body for digest, body in own.items("blobs") if body.child("data").value is not None}
    return {digest: _checked(body, "data", named[digest]) for digest, body in inline.items() if digest in named}


def _checked(body: Fields, name: str, medium: Media) -> bytes:
    data = _decoded(body.child(name))
    if hashlib.sha256(data).hexdigest() != medium.hash or len(data) != medium.size:
        body.refuse("the bytes do not match their hash and size")
    return data


# ---------------------------------------------------------------------------------------------------- messages


class _Images:
    """``images`` of the document: the n-th is that of the n-th image part."""

    def __init__(self, fields: Fields) -> None:
        self.blobs: dict[str, bytes] = {}
        self._left = iter(fields.each("images"))

    def next(self, part: Fields) -> Media:
        image = next(self._left, None)
        if image is None:
            part.refuse("there are fewer images than image parts")
        if isinstance(image.value, dict):
            medium = _medium(part)
            if image.get("hash", str) != medium.hash:
                image.refuse("is not the image of its part")
            return medium
        data = _decoded(image)
        medium = Media.of(PNG, data)
        if part.child("hash").value is not None and _medium(part) != medium:
            image.refuse("the bytes do not match their hash and size")
        self.blobs[medium.hash] = data
        return replace(medium, data=None)

    def all_used(self, fields: Fields) -> None:
        if next(self._left, None) is not None:
            fields.refuse("there are more images than image parts")


def _unwrapped(message: Fields) -> Fields:
    """mistral.rs tags values by their side of an Either: {"Left": text} or {"Right": list of objects}."""
    if not isinstance(message.value, dict):
        message.refuse("should be an object")
    return Fields({name: _either(value) for name, value in message.value.items()}, message.place)


def _either(value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1 and value.keys() <= {"Left", "Right"}:
        return next(iter(value.values()))
    return value


def _message(body: Fields, images: _Images) -> Message:
    role = "system" if body.get("role", str) == "developer" else body.get("role", str)
    status = body.child("status").value
    if role not in get_args(Role) or (status is not None and status not in get_args(Status)):
        body.refuse("no such role or status")
    content = body.child("content")
    text = isinstance(content.value, str)
    parts = (Text(content.value),) if text else tuple(_part(part, images) for part in body.each("content"))
    return Message(
        cast(Role, role),
        tuple(part for part in parts if part != Text("")),
        tuple(_call(call) for call in body.each("tool_calls")),
        body.get("reasoning_content", str, ""),
        body.get("tool_call_id", str, "") or None,
        body.get("name", str, "") or None,
        cast(Status | None, status),
    )


def _part(part: Fields, images: _Images) -> Part:
    match part.get("type", str):
        case "text":
            return Text(part.get("text", str))
        case "image":
            return images.next(part)
        case "media":
            return _medium(part)
        case "video":
            return Text("[video]")
        case kind:
            part.refuse(f"no part of type {kind[:80]!r}")


def _medium(part: Fields) -> Media:
    digest, size = part.get("hash", str), part.get("size", int)
    if not _HASH.match(digest) or size < 0:
        part.refuse("a hash is 64 hexadecimal digits, a size is not negative")
    return Media(part.get("mime", str), digest, size)


def _call(call: Fields) -> ToolCall:
    function = call.child("function")
    arguments = function.child("arguments").value or {}
    if isinstance(arguments, str):
        arguments = parse_arguments(arguments)
    if not isinstance(arguments, dict):
        function.refuse("arguments should be an object")
    return ToolCall(call.get("id", str, ""), function.get("name", str), arguments)


def _decoded(field: Fields) -> bytes:
    if not isinstance(field.value, str):
        field.refuse("should be base64")
    try:
        return base64.b64decode(field.value, validate=True)
    except (binascii.Error, ValueError):
        field.refuse("should be base64")


# -------------------------------------------------------------------------------------- mistral.rs's own sessions


def _foreign(messages: Sequence[Message], blobs: Mapping[str, bytes], namespace: str, left_out: dict[str, int]) -> Read:
    """A user message begins a turn; results get the ids of their calls, unanswered calls a result."""
    key = SessionKey(namespace, IMPORTED)
    turns: list[Turn] = []
    items: list[Item] = []
    for ordinal, group in enumerate(_turns(messages), start=1):
        turn = Turn(f"turn-{ordinal}", key, ordinal, "committed", opened=0.0, closed=0.0)
        turns.append(turn)
        whole = list(_paired(group, left_out))
        items += [Item(len(items) + at, turn.id, message, 0.0) for at, message in enumerate(whole, start=1)]
    session = Session(key, "", 0.0, 0.0, len(items), 0, len(turns))
    return Read(session, tuple(turns), tuple(items), blobs, left_out)


def _turns(messages: Sequence[Message]) -> Iterator[list[Message]]:
    turn: list[Message] = []
    for message in messages:
        if message.role == "user" and any(said.role != "system" for said in turn):
            yield turn
            turn = []
        turn.append(message)
    if turn:
        yield turn


def _paired(messages: Sequence[Message], left_out: dict[str, int]) -> Iterator[Message]:
    waiting: dict[str, str] = {}
    for message in messages:
        if message.role == "tool":
            id = message.call_id if message.call_id in waiting else next(iter(waiting), None)
            if id is None:
                left_out["results"] = left_out.get("results", 0) + 1
                continue
            name = waiting.pop(id)
            yield replace(message, call_id=id, name=message.name or name, status=message.status or "success", calls=())
            continue
        yield from pairs.answers(waiting, "")
        named = _with_ids(message) if message.role == "assistant" else replace(message, calls=())
        waiting = {call.id: call.name for call in named.calls}
        yield named
    yield from pairs.answers(waiting, "")


def _with_ids(message: Message) -> Message:
    ids = [call.id for call in message.calls]
    if all(ids) and len(set(ids)) == len(ids):
        return message
    return replace(message, calls=tuple(replace(call, id=f"call-{at}") for at, call in enumerate(message.calls)))


def _left_out(fields: Fields) -> dict[str, int]:
    counts = {name: len(fields.get(name, list, [])) for name in ("videos", "files")}
    return {name: count for name, count in counts.items() if count}

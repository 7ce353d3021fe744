"""Converts between the messages of selectools (as ``Message.to_dict`` writes them) and of agent-kernel. The functions
have no side effects.

Calls that are directly followed by all their results become calls and results of agent-kernel; an incomplete pair is
stored unchanged and hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from agent_kernel.core.messages import Message, Role, Text, ToolCall, replace_media_with_note
from agent_kernel.sessions.export import responses_items

Body: TypeAlias = dict[str, Any]
SHAPE = "selectools"
"""Key of ``Message.extra`` under which the fields of a selectools message are stored that a Message has no field
for."""
EMPTY: Body = dict.fromkeys(("image_base64", "tool_name", "tool_result", "tool_calls", "tool_call_id", "content_parts"))
SPOKEN: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


def messages_of(bodies: Sequence[Body]) -> list[Message]:
    """Convert messages of selectools, as JSON objects, to one Message each."""
    messages: list[Message] = []
    while len(messages) < len(bodies):
        rest = bodies[len(messages) :]
        messages += _round(rest) or [_alone(rest[0])]
    return messages


def bodies_of(messages: Sequence[Message]) -> list[Body]:
    """Convert messages to messages of selectools, as JSON objects. Messages of agent-kernel's own agent and of other
    programs are converted too; hidden messages are left out, except those that ``messages_of`` made."""
    bodies: list[Body] = []
    others: list[Message] = []
    for message in messages:
        known = _body(message)
        if known is None:
            others.append(message)
            continue
        bodies += _native(others)
        others = []
        bodies.append(known)
    return [*bodies, *_native(others)]


def _round(bodies: Sequence[Body]) -> list[Message]:
    """Return the messages of the round at the beginning of ``bodies``: calls with all their results. The list is empty
    if ``bodies`` do not begin with a complete round."""
    calls = bodies[0].get("tool_calls") or []
    results = bodies[1 : 1 + len(calls)]
    ids = [call.get("id") for call in calls]
    answered = [body.get("tool_call_id") if body.get("role") == "tool" else None for body in results]
    whole = bodies[0].get("role") == "assistant" and calls and all(ids) and len(set(ids)) == len(ids)
    if not whole or sorted(map(str, ids)) != sorted(map(str, answered)):
        return []
    messages = [_calling(bodies[0]), *(_result(body) for body in results)]
    same = [_body(message) == EMPTY | body for message, body in zip(messages, bodies, strict=False)]
    return messages if all(same) else []


def _calling(body: Body) -> Message:
    calls = tuple(
        ToolCall(str(call["id"]), str(call["name"]), dict(call.get("parameters") or {})) for call in body["tool_calls"]
    )
    return Message("assistant", _text(body), calls, extra={SHAPE: _other_fields(body)})


def _result(body: Body) -> Message:
    """Convert a tool result. In selectools, a result without ``tool_result`` is a failure."""
    return Message(
        "tool",
        _text(body),
        call_id=str(body["tool_call_id"]),
        name=body.get("tool_name"),
        status="error" if body.get("tool_result") is None else "success",
        extra={SHAPE: _other_fields(body)},
    )


def _alone(body: Body) -> Message:
    role = SPOKEN.get(str(body.get("role")))
    if role is not None and not body.get("tool_calls"):
        rest = _other_fields(body)
        message = Message(role, _text(body), extra={SHAPE: rest} if rest else {})
        if (_body(message) or _plain(message)) == EMPTY | body:
            return message
    return Message("assistant", hidden=True, extra={SHAPE: dict(body)})


def _body(message: Message) -> Body | None:
    """Return the body from which ``messages_of`` made this message. Returns None if the message is not from selectools,
    or if it has only text: then no body was stored with it."""
    rest = message.extra.get(SHAPE)
    if not isinstance(rest, dict):
        return None
    body = _plain(message) | rest
    if body["tool_result"] is True:
        body["tool_result"] = body["content"]
    return body


def _plain(message: Message) -> Body:
    return {"role": message.role, "content": message.text, **EMPTY}


def _native(messages: Sequence[Message]) -> Iterator[Body]:
    for message in responses_items.to_model_history(messages):
        if message.hidden:
            continue
        calls = [
            {"name": call.name, "parameters": dict(call.arguments), "id": call.id, "thought_signature": None}
            for call in message.calls
        ]
        facts: Body = {"content": replace_media_with_note(message).text, "tool_calls": calls or None}
        if message.role == "tool":
            facts |= {"tool_name": message.name, "tool_call_id": message.call_id}
            facts |= {"tool_result": facts["content"] if message.status == "success" else None}
        yield _plain(message) | facts


def _text(body: Body) -> tuple[Text, ...]:
    content = body.get("content")
    return (Text(content),) if isinstance(content, str) and content else ()


def _other_fields(body: Body) -> Body:
    """Return the fields of the body that a Message cannot represent."""
    rest = {key: value for key, value in body.items() if key not in ("role", "content") and value is not None}
    if isinstance(rest.get("tool_result"), str) and rest["tool_result"] == body.get("content"):
        rest["tool_result"] = True
    return rest

"""When two messages say the same: a form in which they compare, its hash, and hashes of whole beginnings. Pure.

Of a message only its role, content and calls count: nulls, unknown keys, names, reasoning, status and the ids of calls
do not. Texts are joined and lose trailing white space, media are their hashes, arguments are JSON with sorted keys and
one way to write a number. ``developer`` is ``system`` before it comes here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent_kernel.core.messages import Media, Message, Text, ToolCall

_EXACT = 2**53
"""Whole numbers up to here are the same as float and as int."""


def form(message: Message) -> list[Any]:
    """[role, content, calls] as JSON values."""
    return [message.role, _content(message), [_call(call) for call in message.calls]]


def digest(message: Message) -> str:
    return _hash(_json(form(message)))


def same(one: Message, other: Message) -> bool:
    return one is other or form(one) == form(other)


def chain(messages: Iterable[Message]) -> list[str]:
    """For each message the hash of it and all before it. White space does not count here: what is found by a hash is
    compared again."""
    hashes: list[str] = []
    for message in messages:
        said = [message.role, spoken([message]), *(medium.hash for medium in message.media)]
        hashes.append(_hash(_json([*hashes[-1:], said])))
    return hashes


def is_traffic(message: Message) -> bool:
    """Calls and results: clients of the tools of a server do not know of them."""
    return message.role == "tool" or bool(message.calls)


def says_nothing(message: Message) -> bool:
    """No text, no media, no calls: some clients leave such an answer out, and some programs keep notes so."""
    return not is_traffic(message) and not _content(message)


def visible(messages: Sequence[Message]) -> list[int]:
    """Indices of what a client knows of a conversation: no tool traffic, nothing hidden or empty, and not the system
    messages that it begins with."""
    start = instructed(messages)
    return [
        index
        for index, message in enumerate(messages)
        if index >= start and not (message.hidden or is_traffic(message) or says_nothing(message))
    ]


def instructed(messages: Sequence[Message]) -> int:
    """How many system messages it begins with."""
    return next((index for index, message in enumerate(messages) if message.role != "system"), len(messages))


def _content(message: Message) -> list[Any]:
    """Texts and media in turn; a lone text and the same in several parts are one."""
    content: list[Any] = []
    for part in message.parts:
        if isinstance(part, Media):
            content.append({"media": part.hash})
        elif content and isinstance(content[-1], str):
            content[-1] += part.text
        else:
            content.append(part.text)
    trimmed = [part.rstrip() if isinstance(part, str) else part for part in content]
    return [part for part in trimmed if part != ""]


def _call(call: ToolCall) -> list[Any]:
    return [call.name, _number(dict(call.arguments))]


def _number(value: Any) -> Any:
    """1.0 is 1: a client that reads JSON and writes it again may change one into the other."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, Mapping):
        return {key: _number(inner) for key, inner in value.items()}
    return [_number(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def spoken(messages: Iterable[Message]) -> str:
    """The text of messages without white space: what a client shows of an answer that came in pieces."""
    return "".join(
        "".join(part.text.split()) for message in messages for part in message.parts if isinstance(part, Text)
    )

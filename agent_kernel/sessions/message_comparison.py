"""A form in which messages are compared, its hash, and hashes of beginnings of conversations. The functions have no
side effects.

Only role, content and calls count. Nulls, unknown keys, names, reasoning, status and call ids do not. Texts are joined
and lose trailing white space, media are represented by their hashes, arguments are JSON with sorted keys and one
notation for numbers. The role ``developer`` is ``system`` before messages get here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent_kernel.core.messages import Media, Message, Text

_EXACT = 2**53
"""Integers below this are the same as float and as int."""


def comparison_form(message: Message) -> list[Any]:
    """Return [role, content, calls] as JSON values."""
    return [message.role, _content(message), [[call.name, _number(dict(call.arguments))] for call in message.calls]]


def is_same(one: Message, other: Message) -> bool:
    return one is other or comparison_form(one) == comparison_form(other)


def hash_chain(messages: Iterable[Message]) -> list[str]:
    """Return for each message the hash of it and all messages before it. White space is ignored here; a match by hash
    is compared again."""
    hashes: list[str] = []
    for message in messages:
        content = [message.role, spoken_text([message]), *(medium.hash for medium in message.media)]
        text = json.dumps([*hashes[-1:], content], separators=(",", ":"))
        hashes.append(hashlib.blake2b(text.encode(), digest_size=16).hexdigest())
    return hashes


def is_tool_traffic(message: Message) -> bool:
    """Whether a message is a call or a result. Clients do not see those of tools that run on the server."""
    return message.role == "tool" or bool(message.calls)


def is_empty(message: Message) -> bool:
    """Whether a message has no text, media or calls. Some clients omit such answers, and some programs store notes in
    this form."""
    return not is_tool_traffic(message) and not _content(message)


def visible_indices(messages: Sequence[Message]) -> list[int]:
    """Return the indices of messages that a client knows: no tool traffic, nothing hidden or empty, and no leading
    system messages."""
    start = count_instructions(messages)
    return [
        index
        for index, message in enumerate(messages)
        if index >= start and not (message.hidden or is_tool_traffic(message) or is_empty(message))
    ]


def count_instructions(messages: Sequence[Message]) -> int:
    """Return the number of leading system messages."""
    return next((index for index, message in enumerate(messages) if message.role != "system"), len(messages))


def _content(message: Message) -> list[Any]:
    """Return the texts and media in order. A single text and the same text in several parts give the same result."""
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


def _number(value: Any) -> Any:
    """Return the number in one notation: 1.0 becomes 1, since a client that parses and rewrites JSON may change one
    into the other."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, Mapping):
        return {key: _number(inner) for key, inner in value.items()}
    return [_number(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def spoken_text(messages: Iterable[Message]) -> str:
    """Return the text of messages without white space, to compare an answer that came in pieces."""
    return "".join(
        "".join(part.text.split()) for message in messages for part in message.parts if isinstance(part, Text)
    )

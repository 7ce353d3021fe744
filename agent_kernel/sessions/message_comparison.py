"""Converts messages to the form in which they are compared, and computes hashes of the first messages of a
conversation. The functions have no side effects.

Only role, content and calls are compared, not nulls, unknown keys, names, reasoning, status and call ids. Adjacent
texts are joined and lose trailing white space, media are represented by their hashes, and arguments are JSON with
sorted keys and one notation for numbers. Callers have already replaced the role ``developer`` by ``system``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent_kernel.core.messages import Media, Message, Text

_EXACT = 2**53
"""Integers below this value are exactly representable as float."""


def comparison_form(message: Message) -> list[Any]:
    """Return [role, content, calls] as JSON values."""
    return [message.role, _content(message), [[call.name, _number(dict(call.arguments))] for call in message.calls]]


def is_same(first: Message, second: Message) -> bool:
    return first is second or comparison_form(first) == comparison_form(second)


def hash_chain(messages: Iterable[Message]) -> list[str]:
    """Return for each message a hash of this message and all messages before it. White space is ignored, so a match by
    hash must be compared again."""
    hashes: list[str] = []
    for message in messages:
        content = [message.role, spoken_text([message]), *(medium.hash for medium in message.media)]
        text = json.dumps([*hashes[-1:], content], separators=(",", ":"))
        hashes.append(hashlib.blake2b(text.encode(), digest_size=16).hexdigest())
    return hashes


def is_tool_traffic(message: Message) -> bool:
    """Return whether a message contains a call or is a result. If the tool runs on the server, clients do not see such
    messages."""
    return message.role == "tool" or bool(message.calls)


def is_empty(message: Message) -> bool:
    """Return whether a message has no text, media or calls. Some clients leave out such answers when they repeat a
    conversation, and some programs store their own notes in such messages."""
    return not is_tool_traffic(message) and not _content(message)


def visible_indices(messages: Sequence[Message]) -> list[int]:
    """Return the indices of the messages that a client knows: all but calls and results, hidden and empty messages, and
    system messages at the beginning."""
    start = count_instructions(messages)
    return [
        index
        for index, message in enumerate(messages)
        if index >= start and not (message.hidden or is_tool_traffic(message) or is_empty(message))
    ]


def count_instructions(messages: Sequence[Message]) -> int:
    """Return the number of system messages at the beginning."""
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
    """Return a JSON value in which whole floats are integers: 1.0 becomes 1, since a client that parses and rewrites
    JSON may change one into the other."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, Mapping):
        return {key: _number(inner) for key, inner in value.items()}
    return [_number(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def spoken_text(messages: Iterable[Message]) -> str:
    """Return the joined text of messages without white space, so that an answer that is divided by calls can be
    compared with one that is not."""
    return "".join(
        "".join(part.text.split()) for message in messages for part in message.parts if isinstance(part, Text)
    )

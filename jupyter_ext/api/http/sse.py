"""Encodes server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

from agent_kernel.core.events import Event

KEEP_ALIVE = b": keep-alive\n\n"
CONTENT_TYPE = "text/event-stream; charset=utf-8"
_ENCODER = json.JSONEncoder(ensure_ascii=False)
LINE_ENDS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})
"""Characters that do not end lines in server-sent events, but do for many readers (``str.splitlines``, httpx). In
JSON they occur only in strings, so they are escaped there."""


def encode(data: Mapping[str, Any], kind: str = "", number: int | None = None) -> bytes:
    """Encode one event. ``kind`` is the name of the event, empty for none; ``number`` is its id, None for none. JSON
    has no raw line breaks, so one data line is enough."""
    head = (f"id: {number}\n" if number is not None else "") + (f"event: {kind}\n" if kind else "")
    body = _ENCODER.encode(data).translate(LINE_ENDS)
    return f"{head}data: {body}\n\n".encode("utf-8", "backslashreplace")


def encode_event(event: Event) -> bytes:
    return encode(event.to_json(), event.body.type, event.seq)


async def encode_events(events: AsyncIterator[Event]) -> AsyncGenerator[bytes, None]:
    async for event in events:
        yield encode_event(event)


async def encode_batches(batches: AsyncIterator[Sequence[Event]]) -> AsyncGenerator[bytes, None]:
    """Encode each batch of events as one block of bytes, so that events that exist at the same time are sent by one
    write."""
    async for batch in batches:
        yield b"".join(map(encode_event, batch))

"""Stores the messages that one MCP session sent, so that a client that lost its connection gets the rest of a stream.

The SDK passes each message here before it sends it, and asks for the messages after an event if a client reconnects
with ``Last-Event-ID``. This module does not import the SDK, which is loaded when the first client connects.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

MAX_BYTES = 1 << 20
"""Maximum size of the stored streams of one session. The oldest complete streams are removed first. Streams that have
no response yet and the newest stream are always kept, so that a client can get an answer of any size."""
EVENT_BYTES = 256
"""Number of bytes that are counted for an event in addition to its message."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event of a stream. ``message`` is None for the event that opens a stream and has no data."""

    number: int
    stream: str
    message: Any
    size: int

    @property
    def ends_stream(self) -> bool:
        return hasattr(self.message, "result") or hasattr(self.message, "error")


class NoMessage:
    """Takes the place of the message in an event that has none. The SDK then writes an event with an id and no data."""

    def model_dump_json(self, **options: object) -> str:
        return ""


class EventReplay:
    """The ``EventStore`` of one MCP session. An id is the random ``key`` of the session and the number of the event.
    ``event_type`` creates an event of the SDK from a message and an id."""

    def __init__(self, event_type: Callable[[Any, str], Any]) -> None:
        self._event_type = event_type
        self.key = secrets.token_hex(8)
        self._streams: dict[str, list[StoredEvent]] = {}
        self._count = 0
        self._size = 0
        self._arrival = asyncio.Event()

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._count += 1
        size = EVENT_BYTES if message is None else EVENT_BYTES + len(message.model_dump_json())
        event = StoredEvent(self._count, stream_id, message, size)
        if self._is_complete(stream_id):  # the client uses the id of an earlier request again
            self._remove(stream_id)
        self._streams.setdefault(stream_id, []).append(event)
        self._size += size
        if self._size > MAX_BYTES:
            self._remove_old_streams(stream_id)
        self._arrival.set()
        self._arrival = asyncio.Event()
        return self._id(event)

    async def replay_events_after(
        self, last_event_id: str, send_callback: Callable[[Any], Awaitable[None]]
    ) -> str | None:
        """Send the events of a stream after ``last_event_id``, also those that are stored later, up to the response.

        The SDK could send the later ones itself, but it would lose a message that is stored before it has connected the
        stream again. The caller ends this method when the client disconnects or the session ends. Returns None, as the
        SDK then sends nothing more.
        """
        last = self._event(last_event_id)
        if last is not None and self._has_opening_event(last.stream):
            # Clients look for the id to resume after among the events of the present connection only.
            await send_callback(self._event_type(NoMessage(), last_event_id))
        events = self._streams[last.stream] if last is not None else []  # an open stream only grows
        position = events.index(last) + 1 if last is not None else 0
        while last is not None and not last.ends_stream:
            arrival = self._arrival
            if position == len(events):
                await arrival.wait()
                continue
            last, position = events[position], position + 1
            if last.message is not None:
                await send_callback(self._event_type(last.message, self._id(last)))
        return None

    def can_resume(self, last_event_id: str) -> bool:
        """Return True if events follow, or can follow, this one in its stream; False also if it was removed."""
        event = self._event(last_event_id)
        return event is not None and not event.ends_stream

    def _remove_old_streams(self, newest: str) -> None:
        for name in list(self._streams):
            if name != newest and self._is_complete(name):
                self._remove(name)
            if self._size <= MAX_BYTES:
                return

    def _is_complete(self, stream: str) -> bool:
        return stream in self._streams and self._streams[stream][-1].ends_stream

    def _remove(self, stream: str) -> None:
        self._size -= sum(event.size for event in self._streams.pop(stream))

    def _has_opening_event(self, stream: str) -> bool:
        """Return True if the SDK opened the stream with an event without data. It does so for clients of a version of
        the protocol in which an event may be empty."""
        return any(event.message is None for event in self._streams.get(stream, ()))

    def _event(self, id: str) -> StoredEvent | None:
        return next((event for events in self._streams.values() for event in events if self._id(event) == id), None)

    def _id(self, event: StoredEvent) -> str:
        return f"{self.key}-{event.number}"


class SessionReplays:
    """The stored events of all open MCP sessions.

    Each session has a store of its own: one for all would mix their streams, because the SDK names a stream by the id
    of its request, which is unique in one session only.
    """

    def __init__(self) -> None:
        self._replays: WeakValueDictionary[str, EventReplay] = WeakValueDictionary()

    def new(self, event_type: Callable[[Any, str], Any]) -> EventReplay:
        replay = EventReplay(event_type)
        self._replays[replay.key] = replay
        return replay

    def find(self, event_id: str) -> EventReplay | None:
        """Return the events of the session that sent this event; None if no open session sent it."""
        return self._replays.get(event_id.partition("-")[0])

"""Stores the messages that one MCP session sent, so that a client that lost its connection gets the rest of a stream.

The SDK passes each message here before it sends it, and asks for the messages after an event if a client reconnects
with ``Last-Event-ID``. This module does not import the SDK, which is loaded when the first client connects.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

MAX_BYTES = 1 << 20
"""Maximum size of the complete streams of one session, which have their response. The oldest are removed first. The
newest stream is always kept, so that a client can get an answer of any size."""
MAX_OPEN_BYTES, MAX_OPEN_EVENTS = 2 << 20, 4_000
"""Maximum size and number of the events in all streams of one session that have no response yet. Some never get one:
the stream of a cancelled call, and the one for messages that belong to no call. The oldest events are removed first; a
client that still needs one of them cannot resume the stream."""
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


@dataclass(slots=True)
class StoredStream:
    """The events of one stream in their order. ``removed`` is the number of the newest event that was removed from its
    beginning. ``has_opening_event`` is True if the SDK opened the stream with an event without data, as it does for
    clients of a version of the protocol in which an event may be empty."""

    events: deque[StoredEvent] = field(default_factory=deque)
    size: int = 0
    removed: int = 0
    has_opening_event: bool = False

    @property
    def is_complete(self) -> bool:
        return self.events[-1].ends_stream

    def after(self, number: int) -> list[StoredEvent]:
        return [event for event in self.events if event.number > number]


class EventReplay:
    """The ``EventStore`` of one MCP session. An id is the random ``key`` of the session and the number of the event.
    ``event_type`` creates an event of the SDK from a message and an id."""

    def __init__(self, event_type: Callable[[Any, str], Any]) -> None:
        self._event_type = event_type
        self.key = secrets.token_hex(8)
        self._streams: dict[str, StoredStream] = {}
        self._count = 0
        self._open_events: dict[int, StoredEvent] = {}
        self._complete_size = self._open_size = 0
        self._arrival = asyncio.Event()

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._count += 1
        size = EVENT_BYTES if message is None else EVENT_BYTES + len(message.model_dump_json())
        event = StoredEvent(self._count, stream_id, message, size)
        if stream_id in self._streams and self._streams[stream_id].is_complete:
            self._remove(stream_id)  # the client uses the id of an earlier request again
        stream = self._streams.setdefault(stream_id, StoredStream(has_opening_event=message is None))
        stream.events.append(event)
        stream.size += size
        self._open_size += size
        self._open_events[event.number] = event
        if event.ends_stream:
            self._complete(stream)
        self._remove_old_streams(stream_id)
        self._remove_old_events(event)
        self._arrival.set()
        self._arrival = asyncio.Event()
        return self._id(event)

    async def replay_events_after(
        self, last_event_id: str, send_callback: Callable[[Any], Awaitable[None]]
    ) -> str | None:
        """Send the events of a stream after ``last_event_id``, also those that are stored later, up to the response.

        The SDK could send the later ones itself, but it would lose a message that is stored before it has connected the
        stream again. The caller ends this method when the client disconnects or the session ends. Returns None, as the
        SDK then sends nothing more. Ends early if the next event was removed before it was sent.
        """
        last = self._event(last_event_id)
        if last is None:
            return None
        stream = self._streams[last.stream]
        if stream.has_opening_event:
            # Clients look for the id to resume after among the events of the present connection only.
            await send_callback(self._event_type(NoMessage(), last_event_id))
        while not last.ends_stream and stream.removed <= last.number:
            arrival = self._arrival
            following = stream.after(last.number)
            if not following:
                if self._streams.get(last.stream) is not stream:
                    return None
                await arrival.wait()
                continue
            for event in following:
                if event.message is not None:
                    await send_callback(self._event_type(event.message, self._id(event)))
            last = following[-1]
        return None

    def can_resume(self, last_event_id: str) -> bool:
        """Return True if events follow, or can follow, this one in its stream; False also if it was removed."""
        event = self._event(last_event_id)
        return event is not None and not event.ends_stream

    def _remove_old_streams(self, newest: str) -> None:
        if self._complete_size <= MAX_BYTES:
            return
        for name, stream in list(self._streams.items()):
            if name != newest and stream.is_complete:
                self._remove(name)
            if self._complete_size <= MAX_BYTES:
                return

    def _remove_old_events(self, newest: StoredEvent) -> None:
        """Remove the oldest events of streams without a response, but never the newest one of the session."""
        while self._open_size > MAX_OPEN_BYTES or len(self._open_events) > MAX_OPEN_EVENTS:
            number, event = next(iter(self._open_events.items()))
            if event is newest:
                return
            del self._open_events[number]
            stream = self._streams[event.stream]
            stream.events.popleft()
            stream.removed = number
            stream.size -= event.size
            self._open_size -= event.size
            if not stream.events:
                del self._streams[event.stream]

    def _complete(self, stream: StoredStream) -> None:
        for event in stream.events:
            del self._open_events[event.number]
        self._open_size -= stream.size
        self._complete_size += stream.size

    def _remove(self, stream: str) -> None:
        """Remove a complete stream."""
        self._complete_size -= self._streams.pop(stream).size

    def _event(self, id: str) -> StoredEvent | None:
        key, _, number = id.partition("-")
        if key != self.key or not number.isdecimal():
            return None
        events = (event for stream in self._streams.values() for event in stream.events)
        return next((event for event in events if event.number == int(number[:20])), None)

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

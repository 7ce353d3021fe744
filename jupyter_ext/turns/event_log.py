"""Stores the numbered events of one turn in memory. Any number of readers can follow the log from any number.

The log joins old deltas when it would exceed its bound. A late reader still gets all of the text.
"""

from __future__ import annotations

import asyncio
import dataclasses
from bisect import bisect_right
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import islice

from agent_kernel.core.events import (
    CallFinished,
    CallOutput,
    Event,
    EventBody,
    EventNumbering,
    FileProduced,
    TurnFinished,
)
from agent_kernel.turn.redacted_events import DELTAS, same_stream

MAX_EVENTS = 10_000
MAX_BYTES = 8 << 20
MAX_BATCH = 100
"""Maximum number of events that a reader gets at once."""
OVERHEAD = 200
"""Bytes counted for each event in addition to its text."""


@dataclass(slots=True)
class LogEntry:
    """One event, or several joined deltas under the number of the last of them.

    ``marks`` are (number, length of the text up to that number) of the joined deltas; with them, a reader that already
    has some of the deltas gets only the rest.
    """

    event: Event
    size: int
    marks: list[tuple[int, int]] = field(default_factory=list)

    def after(self, seq: int) -> Event:
        """Return the event without the text that a reader at number ``seq`` already has."""
        body = self.event.body
        if not self.marks or not isinstance(body, DELTAS):
            return self.event
        place = bisect_right(self.marks, seq, key=lambda mark: mark[0])
        if not place:
            return self.event
        return replace(self.event, body=replace(body, text=body.text[self.marks[place - 1][1] :]))

    def rest(self, seq: int) -> LogEntry:
        """Return the entry without the text that a reader at number ``seq`` already has, and without its marks."""
        place = bisect_right(self.marks, seq, key=lambda mark: mark[0])
        if not place:
            return self
        event, start = self.after(seq), self.marks[place - 1][1]
        return LogEntry(event, event_size(event.body), [(number, end - start) for number, end in self.marks[place:]])


class EventLog:
    """The events of one turn, which any number of readers can follow.

    Belongs to one event loop; call ``append`` only there.

    The log ends with TurnFinished. Later events are dropped, so that TurnFinished is always the last one.
    """

    def __init__(
        self,
        turn: str,
        session: str,
        *,
        max_events: int = MAX_EVENTS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._stamp = EventNumbering(turn, session)
        self._entries: list[LogEntry] = []
        self._size = 0
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._changed = asyncio.Event()
        self.finished: TurnFinished | None = None

    @property
    def head(self) -> int:
        """The number of the newest event; 0 if there is none."""
        return self._stamp.seq

    @property
    def size(self) -> int:
        """The approximate size of the log in bytes."""
        return self._size

    def append(self, body: EventBody) -> None:
        if self.finished is not None:
            return
        self._append_entry(LogEntry(self._stamp(body), event_size(body)))
        if isinstance(body, TurnFinished):
            self.finished = body
        self._wake()

    def copy(self, entry: LogEntry) -> None:
        """Append an event of the same turn's log on another server, under the number that it has there."""
        if self.finished is not None:
            return
        self._stamp.seq, self._stamp.round = entry.event.seq, entry.event.round
        self._append_entry(entry)
        if isinstance(entry.event.body, TurnFinished):
            self.finished = entry.event.body
        self._wake()

    def entries_after(self, seq: int) -> list[LogEntry]:
        """Return the entries after number ``seq``, for a copy of the log that ends there."""
        return [entry.rest(seq) for entry in self._tail(seq)]

    def _tail(self, seq: int) -> list[LogEntry]:
        """Return the entries after number ``seq``. Searched from the end, where nearly every reader is."""
        start = len(self._entries)
        while start and self._entries[start - 1].event.seq > seq:
            start -= 1
        return self._entries[start:]

    async def wait_after(self, seq: int) -> None:
        """Wait until there is an event after number ``seq``, or the log is finished."""
        while self.head <= seq and self.finished is None:
            await self._changed.wait()

    def since(self, seq: int) -> Iterator[Event]:
        """Yield the events after number ``seq`` that exist now."""
        for entry in self._tail(seq):
            yield entry.after(seq)

    async def follow(self, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield the events after number ``after`` as they arrive, up to the last one of the turn."""
        async with aclosing(self.follow_batches(after)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def follow_batches(self, after: int = 0) -> AsyncGenerator[Sequence[Event], None]:
        """Yield the events of ``follow`` in lists; each list has the events that exist at that moment."""
        while True:
            changed = self._changed
            for batch in split_into_batches(self.since(after)):
                yield batch
                after = batch[-1].seq
            if self.finished is not None and after >= self.head:
                return
            if changed is self._changed:
                await changed.wait()

    def _append_entry(self, entry: LogEntry) -> None:
        self._entries.append(entry)
        self._size += entry.size
        if len(self._entries) > self._max_events or self._size > self._max_bytes:
            self._shrink()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _shrink(self) -> None:
        """Join neighbouring deltas; if that is not enough, drop data that the store also holds, oldest first.

        Text of answers cannot be dropped. If the log is still too large because of it, its bound is raised, because
        otherwise every further event would shrink the whole log again.
        """
        runs: list[list[LogEntry]] = []
        for entry in self._entries:
            if runs and same_stream(runs[-1][-1].event.body, entry.event.body):
                runs[-1].append(entry)
            else:
                runs.append([entry])
        self._entries = [_join(run) for run in runs]
        self._size = sum(entry.size for entry in self._entries)
        self._drop_stored_data(self._max_events // 2, self._max_bytes // 2)
        self._max_events = max(self._max_events, 2 * len(self._entries))
        self._max_bytes = max(self._max_bytes, 2 * self._size)

    def _drop_stored_data(self, max_events: int, max_bytes: int) -> None:
        """Drop data from the oldest events until both limits hold. The store still has it: the output of a call is
        in its result, media are at ``sessions/{id}/blobs/{hash}`` and files at ``files/{id}/content``."""
        events, size = len(self._entries), self._size
        entries: list[LogEntry] = []
        for entry in self._entries:
            light = entry if events <= max_events and size <= max_bytes else _without_stored_data(entry)
            size -= entry.size - (light.size if light else 0)
            if light is None:
                events -= 1
            else:
                entries.append(light)
        self._entries, self._size = entries, size


def split_into_batches(events: Iterator[Event]) -> Iterator[Sequence[Event]]:
    while batch := list(islice(events, MAX_BATCH)):
        yield batch


def event_size(body: EventBody) -> int:
    """Return the approximate size of an event in bytes."""
    if isinstance(body, DELTAS):
        return OVERHEAD + len(body.text)
    if isinstance(body, FileProduced):
        return OVERHEAD + sum(len(str(value)) for value in body.file.values())
    if isinstance(body, CallFinished):
        return OVERHEAD + len(body.text) + sum(len(str(medium.get("data") or "")) for medium in body.media)
    return OVERHEAD + sum(len(str(getattr(body, item.name))) for item in dataclasses.fields(body))


def _join(run: list[LogEntry]) -> LogEntry:
    """Join neighbouring deltas of one stream into one entry."""
    if len(run) == 1:
        return run[0]
    texts: list[str] = []
    marks: list[tuple[int, int]] = []
    length = 0
    for entry in run:
        body = entry.event.body
        assert isinstance(body, DELTAS)
        marks.extend((seq, length + end) for seq, end in entry.marks or [(entry.event.seq, len(body.text))])
        texts.append(body.text)
        length += len(body.text)
    last = run[-1].event
    assert isinstance(last.body, DELTAS)
    return LogEntry(
        replace(last, body=replace(last.body, text="".join(texts))), OVERHEAD + length + 16 * len(marks), marks
    )


def _without_stored_data(entry: LogEntry) -> LogEntry | None:
    """Return the entry without data that the store also holds; None if nothing is left."""
    body = entry.event.body
    if isinstance(body, CallOutput):
        return None
    if isinstance(body, FileProduced):
        facts = {key: value for key, value in body.file.items() if key not in ("text", "data_base64")}
        return LogEntry(replace(entry.event, body=replace(body, file=facts)), OVERHEAD + len(str(facts)))
    if not isinstance(body, CallFinished):
        return entry
    media = tuple({key: value for key, value in medium.items() if key != "data"} for medium in body.media)
    light = replace(body, media=media)
    return LogEntry(replace(entry.event, body=light), event_size(light))

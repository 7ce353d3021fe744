"""The numbered events of one turn, followed by any number of readers from any number on.

Text comes as deltas. They are joined to at most DELTAS_PER_S events a second before they are numbered, and joined
further, once they are old, when the log would grow over its bound; a reader that comes late still gets all the text.
"""

from __future__ import annotations

import asyncio
import dataclasses
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from agent_kernel.core.events import (
    CallFinished,
    CallOutput,
    Event,
    EventBody,
    EventNumbering,
    FileProduced,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
)

DELTAS_PER_S = 20
MAX_EVENTS = 10_000
MAX_BYTES = 8 << 20
OVERHEAD = 200
"""Bytes counted for an event beside its text."""

Delta: TypeAlias = TextDelta | ReasoningDelta | CallOutput


def joins(first: EventBody, second: EventBody) -> bool:
    """Both are deltas of the same stream."""
    if isinstance(first, CallOutput) and isinstance(second, CallOutput):
        return (first.call, first.stream) == (second.call, second.stream)
    return isinstance(first, TextDelta | ReasoningDelta) and type(first) is type(second)


@dataclass(slots=True)
class Entry:
    """An event, or several deltas joined into one that has the number of the last.

    ``marks`` are (seq, length of the text up to it) of the joined ones, so that a reader who has some gets the rest.
    """

    event: Event
    size: int
    marks: list[tuple[int, int]] = field(default_factory=list)

    def after(self, seq: int) -> Event:
        """The event without what a reader that stopped at ``seq`` has."""
        body = self.event.body
        place = bisect_right(self.marks, seq, key=lambda mark: mark[0])
        if not place or not isinstance(body, TextDelta | ReasoningDelta | CallOutput):
            return self.event
        return replace(self.event, body=replace(body, text=body.text[self.marks[place - 1][1] :]))


class EventLog:
    """Belongs to one event loop; ``append`` is called there.

    The log ends with TurnFinished; bodies that come after it are dropped, so that it is the last event whatever
    happens.
    """

    def __init__(
        self,
        turn: str,
        session: str,
        *,
        max_events: int = MAX_EVENTS,
        max_bytes: int = MAX_BYTES,
        per_s: float = DELTAS_PER_S,
    ) -> None:
        self._stamp = EventNumbering(turn, session)
        self._entries: list[Entry] = []
        self._size = 0
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._interval = 1 / per_s
        self._pending: list[Delta] = []
        self._due: asyncio.TimerHandle | None = None
        self._last_delta = float("-inf")
        self._changed = asyncio.Event()
        self.finished: TurnFinished | None = None

    @property
    def head(self) -> int:
        """The number of the newest event, 0 = none."""
        return self._stamp.seq

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return self._size

    def append(self, body: EventBody) -> None:
        if self.finished is not None:
            return
        if isinstance(body, TextDelta | ReasoningDelta | CallOutput):
            self._delta(body)
            return
        self._flush()
        self._number(body)
        if isinstance(body, TurnFinished):
            self.finished = body
        self._wake()

    def since(self, seq: int) -> Iterator[Event]:
        """The events after number ``seq``."""
        start = bisect_right(self._entries, seq, key=lambda entry: entry.event.seq)
        for entry in self._entries[start:]:
            yield entry.after(seq)

    async def follow(self, after: int = 0) -> AsyncIterator[Event]:
        """The events after number ``after`` as they come, to the last one."""
        while True:
            changed = self._changed
            for event in self.since(after):
                yield event
                after = event.seq
            if self.finished is not None and after >= self.head:
                return
            if changed is self._changed:
                await changed.wait()

    def _delta(self, body: Delta) -> None:
        """The first one at once, then what has gathered each interval."""
        if self._pending and not joins(self._pending[0], body):
            self._flush()
        self._pending.append(body)
        loop = asyncio.get_running_loop()
        wait = self._last_delta + self._interval - loop.time()
        if wait <= 0:
            self._flush()
        elif self._due is None:
            self._due = loop.call_later(wait, self._flush)

    def _flush(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if not self._pending:
            return
        body = replace(self._pending[0], text="".join(delta.text for delta in self._pending))
        self._pending = []
        self._last_delta = asyncio.get_running_loop().time()
        self._number(body)
        self._wake()

    def _number(self, body: EventBody) -> None:
        entry = Entry(self._stamp(body), weight(body))
        self._entries.append(entry)
        self._size += entry.size
        if len(self._entries) > self._max_events or self._size > self._max_bytes:
            self._shrink()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _shrink(self) -> None:
        """Joins neighbouring deltas; if that is not enough, leaves out what is kept elsewhere, oldest first.

        What can not be left out (answers) raises the bound, so that the work stays proportional to what comes.
        """
        runs: list[list[Entry]] = []
        for entry in self._entries:
            if runs and joins(runs[-1][-1].event.body, entry.event.body):
                runs[-1].append(entry)
            else:
                runs.append([entry])
        self._entries = [_joined(run) for run in runs]
        self._size = sum(entry.size for entry in self._entries)
        self._shed(self._max_events // 2, self._max_bytes // 2)
        self._max_events = max(self._max_events, 2 * len(self._entries))
        self._max_bytes = max(self._max_bytes, 2 * self._size)

    def _shed(self, max_events: int, max_bytes: int) -> None:
        """Output of calls is in their result, media (``sessions/{id}/blobs/{hash}``) and files (``files/{id}/content``)
        are in the store."""
        events, size = len(self._entries), self._size
        kept: list[Entry] = []
        for entry in self._entries:
            light = entry if events <= max_events and size <= max_bytes else _lighter(entry)
            size -= entry.size - (light.size if light else 0)
            if light is None:
                events -= 1
            else:
                kept.append(light)
        self._entries, self._size = kept, size


def weight(body: EventBody) -> int:
    """About how many bytes an event takes."""
    if isinstance(body, TextDelta | ReasoningDelta | CallOutput):
        return OVERHEAD + len(body.text)
    if isinstance(body, FileProduced):
        return OVERHEAD + sum(len(str(value)) for value in body.file.values())
    if isinstance(body, CallFinished):
        return OVERHEAD + len(body.text) + sum(len(str(medium.get("data") or "")) for medium in body.media)
    return OVERHEAD + sum(len(str(getattr(body, item.name))) for item in dataclasses.fields(body))


def _joined(run: list[Entry]) -> Entry:
    """One entry for neighbouring deltas of one stream."""
    if len(run) == 1:
        return run[0]
    texts: list[str] = []
    marks: list[tuple[int, int]] = []
    length = 0
    for entry in run:
        body = entry.event.body
        assert isinstance(body, TextDelta | ReasoningDelta | CallOutput)
        marks.extend((seq, length + end) for seq, end in entry.marks or [(entry.event.seq, len(body.text))])
        texts.append(body.text)
        length += len(body.text)
    last = run[-1].event
    assert isinstance(last.body, TextDelta | ReasoningDelta | CallOutput)
    return Entry(
        replace(last, body=replace(last.body, text="".join(texts))), OVERHEAD + length + 16 * len(marks), marks
    )


def _lighter(entry: Entry) -> Entry | None:
    """Without what is kept elsewhere; None when nothing of it is left."""
    body = entry.event.body
    if isinstance(body, CallOutput):
        return None
    if isinstance(body, FileProduced):
        facts = {key: value for key, value in body.file.items() if key not in ("text", "data_base64")}
        return Entry(replace(entry.event, body=replace(body, file=facts)), OVERHEAD + len(str(facts)))
    if not isinstance(body, CallFinished):
        return entry
    media = tuple({key: value for key, value in medium.items() if key != "data"} for medium in body.media)
    light = replace(body, media=media)
    return Entry(replace(entry.event, body=light), weight(light))

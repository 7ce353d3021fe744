"""Tracks the received part of a turn, so that the rest can be taken from its stored items when its live log is gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from agent_kernel.core.events import (
    CallFinished,
    CallReturned,
    CallStarted,
    EventBody,
    FileProduced,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
    TurnStarted,
    TurnVersion,
)

ONCE = (TurnStarted, TurnVersion)


class ResumeState:
    """The received part of a turn.

    Stored items have unsplit texts and their own numbers, so they are matched with events by content: texts by their
    length, calls and files by their ids.
    """

    def __init__(self) -> None:
        self._length = {TextDelta: 0, ReasoningDelta: 0}
        self._marks: set[tuple[str, str]] = set()

    def add(self, body: EventBody) -> None:
        if isinstance(body, TextDelta | ReasoningDelta):
            self._length[type(body)] += len(body.text)
        elif mark := _mark(body):
            self._marks.add(mark)

    def rest(self, stored: Iterable[EventBody]) -> Iterator[EventBody]:
        """Yield the events of a retold turn that were not received yet."""
        skip = dict(self._length)
        for body in stored:
            if isinstance(body, TextDelta | ReasoningDelta):
                kind, known = type(body), min(skip[type(body)], len(body.text))
                skip[kind] -= known
                if known < len(body.text):
                    yield replace(body, text=body.text[known:])
            elif _mark(body) not in self._marks:
                yield body


def _mark(body: EventBody) -> tuple[str, str] | None:
    if isinstance(body, ONCE):
        return body.type, ""
    if isinstance(body, CallStarted | CallReturned | CallFinished):
        return body.type, body.call
    if isinstance(body, FileProduced):
        return body.type, str(body.file.get("id", ""))
    return (body.type, "") if isinstance(body, TurnFinished) else None

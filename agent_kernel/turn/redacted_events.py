"""The events of one turn without keys and passwords, also where a key comes in several pieces.

A piece of text whose end may be the beginning of a secret waits for the next one. ``CallOffered`` and
``ApprovalRequired`` stay as they are: a client runs that code, and a person decides about exactly that code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from agent_kernel.core.events import (
    CallFinished,
    CallOutput,
    CallStarted,
    Emit,
    EventBody,
    Notice,
    ReasoningDelta,
    StateLost,
    TextDelta,
    TurnFinished,
)
from agent_kernel.sessions.redaction.redaction import MAX_SECRET, Redactor
from agent_kernel.turn.changed_cells import clean_change

SHORTEST = 4
"""A beginning of fewer characters is shown: words end like that all the time, and so little of a key is none."""
CONTEXT = 32
"""Characters that were shown and still count when the rest of a secret comes."""

Delta: TypeAlias = TextDelta | ReasoningDelta | CallOutput


@dataclass(slots=True)
class DeltaStream:
    """One text that comes in pieces; ``shown`` is the end of what was let through, ``held`` what was not."""

    last: Delta
    shown: str = ""
    held: str = ""


class RedactedEvents:
    """Is called as ``emit`` is, and calls that."""

    def __init__(self, redactor: Redactor, emit: Emit) -> None:
        self._redactor = redactor
        self._emit = emit
        self._streams: dict[tuple[str, str, str], DeltaStream] = {}

    def __call__(self, body: EventBody) -> None:
        if not self._redactor.is_on:
            self._emit(body)
        elif isinstance(body, TextDelta | ReasoningDelta | CallOutput):
            self._flush_others(body)
            self._piece(body)
        else:
            self._flush_before(body)
            self._emit(self._clean(body))

    def _piece(self, body: Delta) -> None:
        stream = self._streams.setdefault(_key(body), DeltaStream(body))
        stream.last = body
        text = stream.shown + stream.held + body.text
        start = self._redactor.held_from(text)
        waits = SHORTEST <= len(text) - start < MAX_SECRET
        cut = max(len(stream.shown), start) if waits else len(text)
        self._show(stream, text[:cut])
        stream.held = text[cut:]

    def _show(self, stream: DeltaStream, text: str) -> None:
        """``text`` begins with what was shown already."""
        clean = self._redactor.text(text)
        fresh = clean[_common(clean, stream.shown) :]
        stream.shown = text[-CONTEXT:] if clean == text else ""
        if fresh:
            self._emit(replace(stream.last, text=fresh))

    def _flush(self, key: tuple[str, str, str]) -> None:
        stream = self._streams.pop(key)
        if stream.held:
            self._show(stream, stream.shown + stream.held)

    def _flush_others(self, body: Delta) -> None:
        """Text and reasoning take turns; outputs of calls that run at the same time do not end each other."""
        for key in list(self._streams):
            if key != _key(body) and not (key[0] == CallOutput.type == body.type):
                self._flush(key)

    def _flush_before(self, body: EventBody) -> None:
        for key in list(self._streams):
            goes_on = key[0] == CallOutput.type and not isinstance(body, TurnFinished)
            if not goes_on or (isinstance(body, CallFinished) and body.call == key[1]):
                self._flush(key)

    def _clean(self, body: EventBody) -> EventBody:
        clean = self._redactor
        match body:
            case CallStarted():
                return replace(body, arguments=clean.value(body.arguments))
            case CallFinished():
                return replace(body, text=clean.text(body.text), details=clean_change(clean, body.details))
            case Notice():
                return replace(body, text=clean.text(body.text))
            case StateLost():
                return replace(body, reason=clean.text(body.reason))
            case TurnFinished():
                error: Mapping[str, Any] | None = clean.value(body.error)
                return replace(body, reason=clean.text(body.reason), error=error)
            case _:
                return body


def _key(body: Delta) -> tuple[str, str, str]:
    if isinstance(body, CallOutput):
        return body.type, body.call, body.stream
    return body.type, "", ""


def _common(first: str, second: str) -> int:
    """How many characters both begin with."""
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )

"""Joins the deltas of one turn and redacts its events, including secrets that arrive in several deltas. Deltas are
joined first, so that redacting, numbering and sending them runs a few times a second, however fast the model is.

Text whose end may be the beginning of a secret is held back until the next delta. ``CallOffered`` and
``ApprovalRequired`` are not redacted: a client runs exactly that code, and a person decides about exactly that code.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

from agent_kernel.core.events import (
    ApprovalResolved,
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
"""Minimum length of a possible beginning of a secret that is held back. A shorter one is shown, because many words end
like that and it reveals nothing."""
CONTEXT = 32
"""Number of characters already shown that are still considered when the rest of a secret arrives."""

Delta: TypeAlias = TextDelta | ReasoningDelta | CallOutput
DELTAS = (TextDelta, ReasoningDelta, CallOutput)


@dataclass(slots=True)
class DeltaStream:
    """One text that arrives in deltas. ``shown`` is the last part of the text that was already emitted, ``held`` the
    text that is held back."""

    last: Delta
    shown: str = ""
    held: str = ""


class RedactedEvents:
    """An ``emit`` function that redacts events and passes them to the ``emit`` function that it wraps."""

    def __init__(self, redactor: Redactor, emit: Emit) -> None:
        self._redactor = redactor
        self._emit = emit
        self._streams: dict[tuple[str, str, str], DeltaStream] = {}

    def __call__(self, body: EventBody) -> None:
        if not self._redactor.is_on:
            self._emit(body)
        elif isinstance(body, TextDelta | ReasoningDelta | CallOutput):
            key = _key(body)
            self._flush_others(key)
            self._piece(key, body)
        else:
            self._flush_before(body)
            self._emit(self._clean(body))

    def _piece(self, key: tuple[str, str, str], body: Delta) -> None:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = DeltaStream(body)
        stream.last = body
        text = stream.shown + stream.held + body.text
        if self._redactor.is_clean(text, SHORTEST):  # most deltas; the searches below cost several times as much
            fresh = stream.held + body.text
            stream.shown, stream.held = text[-CONTEXT:], ""
            self._emit_text(stream, fresh)
            return
        start = self._redactor.held_from(text, SHORTEST)
        waits = SHORTEST <= len(text) - start < MAX_SECRET
        cut = max(len(stream.shown), start) if waits else len(text)
        self._show(stream, text[:cut])
        stream.held = text[cut:]

    def _show(self, stream: DeltaStream, text: str) -> None:
        """Emit the new part of ``text``, which begins with the text that was already shown."""
        clean = self._redactor.text(text)
        fresh = clean[_common(clean, stream.shown) :]
        stream.shown = text[-CONTEXT:] if clean == text else ""
        self._emit_text(stream, fresh)

    def _emit_text(self, stream: DeltaStream, text: str) -> None:
        if text:
            self._emit(stream.last if text == stream.last.text else replace(stream.last, text=text))

    def _flush(self, key: tuple[str, str, str]) -> None:
        stream = self._streams.pop(key)
        if stream.held:
            self._show(stream, stream.shown + stream.held)

    def _flush_others(self, key: tuple[str, str, str]) -> None:
        """Emit the text that streams other than ``key`` hold back, if they have ended. A stream of text ends when
        reasoning begins, and a stream of reasoning when text begins. The outputs of calls may alternate, because these
        calls run at the same time, so they do not end each other."""
        for other in list(self._streams):
            if other != key and not (other[0] == CallOutput.type == key[0]):
                self._flush(other)

    def _flush_before(self, body: EventBody) -> None:
        for key in list(self._streams):
            continues = key[0] == CallOutput.type and not isinstance(body, TurnFinished)
            if not continues or (isinstance(body, CallFinished) and body.call == key[1]):
                self._flush(key)

    def _clean(self, body: EventBody) -> EventBody:
        clean = self._redactor
        match body:
            case CallStarted():
                return replace(body, arguments=clean.value(body.arguments))
            case ApprovalResolved(edited=str(edited)):
                return replace(body, edited=clean.text(edited))
            case CallFinished():
                return replace(body, text=clean.text(body.text), details=clean_change(clean, body.details))
            case Notice():
                return replace(body, text=clean.text(body.text), details=clean.text(body.details))
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
    """Return the length of the common prefix of the two texts."""
    if first.startswith(second):
        return len(second)
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


class JoinedDeltas:
    """An ``emit`` function that joins deltas, so that it passes on at most ``per_s`` of them a second, and every other
    event at once, after the deltas before it. With ``per_s`` infinite it passes on each delta unchanged.

    Belongs to one event loop; create and call it only there. As a context manager it passes on the remaining deltas at
    the end."""

    def __init__(self, emit: Emit, per_s: float = math.inf) -> None:
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        self._interval = 1 / per_s
        self._tolerance = self._interval / 4
        self._pending: list[Delta] = []
        self._due: asyncio.TimerHandle | None = None
        self._next = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._flush()

    def __call__(self, body: EventBody) -> None:
        if isinstance(body, DELTAS) and self._interval:
            self._add(body)
        else:
            self._flush()
            self._emit(body)

    def _add(self, body: Delta) -> None:
        """Pass on the first delta at once, and the following ones together at each interval.

        The interval has a tolerance, so that mostly the call that adds the last delta passes them on. Otherwise a
        timer between two deltas would wake the process once more for every event.
        """
        if self._pending and not same_stream(self._pending[0], body):
            self._flush()
        self._pending.append(body)
        if self._loop.time() >= self._next - self._tolerance:
            self._flush()
        elif self._due is None:
            self._due = self._loop.call_at(self._next + self._tolerance, self._flush)

    def _flush(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if not self._pending:
            return
        body = self._pending[0]
        if len(self._pending) > 1:
            body = replace(body, text="".join([delta.text for delta in self._pending]))
        self._pending = []
        # The next time is counted from the time that was due and not from now, so that a late delta does not lower the
        # rate. After a pause the tolerance is added, so that the next delta does not come earlier than one interval
        # after this one.
        now = self._loop.time()
        is_late = now > self._next + self._tolerance
        self._next = (now + self._tolerance if is_late else self._next) + self._interval
        self._emit(body)


def same_stream(first: EventBody, second: EventBody) -> bool:
    """Return whether both events are deltas of the same stream."""
    if isinstance(first, CallOutput) and isinstance(second, CallOutput):
        return (first.call, first.stream) == (second.call, second.stream)
    return isinstance(first, TextDelta | ReasoningDelta) and type(first) is type(second)

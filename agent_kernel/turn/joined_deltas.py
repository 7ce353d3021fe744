"""Joins the deltas of a turn before they are redacted, numbered and sent, so that each of these steps runs at most a
few times a second, however fast the model is."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeAlias

from agent_kernel.core.events import CallOutput, Emit, EventBody, ReasoningDelta, TextDelta

Delta: TypeAlias = TextDelta | ReasoningDelta | CallOutput
DELTAS = (TextDelta, ReasoningDelta, CallOutput)


class JoinedDeltas:
    """An ``emit`` function that joins deltas, so that it passes on at most ``per_s`` of them a second, and every other
    event at once, after the deltas before it. With ``per_s`` infinite it passes on each delta as it is.

    Belongs to one event loop; create and call it only there. As a context manager it passes on what it still holds.
    """

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flush()

    def __call__(self, body: EventBody) -> None:
        if isinstance(body, DELTAS) and self._interval:
            self._add(body)
        else:
            self._flush()
            self._emit(body)

    def _add(self, body: Delta) -> None:
        """Pass on the first delta at once, and the following ones together at each interval.

        Each time of the schedule has a tolerance, so that the deltas are mostly passed on by the call that brings the
        last of them: a timer between two deltas would wake the process once more for every event."""
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
        # One interval after the time that was due, and not after now: what was passed on late does not lower the rate.
        # After a pause the tolerance is added, so that no event comes earlier than an interval after this one.
        now = self._loop.time()
        is_late = now > self._next + self._tolerance
        self._next = (now + self._tolerance if is_late else self._next) + self._interval
        self._emit(body)


def same_stream(first: EventBody, second: EventBody) -> bool:
    """Return whether both events are deltas of the same stream."""
    if isinstance(first, CallOutput) and isinstance(second, CallOutput):
        return (first.call, first.stream) == (second.call, second.stream)
    return isinstance(first, TextDelta | ReasoningDelta) and type(first) is type(second)

"""Measures how long a turn or a call took, excluding the time spent waiting for a person."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from agent_kernel.core.events import ApprovalRequired, ApprovalResolved, CallFinished, EventBody

WAITED = "waited_s"
"""Key in the details of a call: seconds in which the client that ran it waited for a person."""


@dataclass(slots=True)
class WorkTime:
    """Measures the time since it was created, without the time spent waiting for a person. It must receive every event
    of the turn or call."""

    _began: float = field(default_factory=time.monotonic)
    _waited: float = 0.0
    _waiting: dict[str, float] = field(default_factory=dict)

    def note(self, body: EventBody) -> None:
        match body:
            case ApprovalRequired(approval=approval):
                self._waiting[approval] = time.monotonic()
            case ApprovalResolved(approval=approval) if approval in self._waiting:
                since = min(self._waiting.values())  # concurrent questions count once, from the first to the last
                del self._waiting[approval]
                if not self._waiting:
                    self._waited += time.monotonic() - since
                else:
                    self._waiting[next(iter(self._waiting))] = since
            case CallFinished(details=details):
                self._waited += _seconds_in(details.get(WAITED))

    @property
    def seconds(self) -> float:
        now = time.monotonic()
        waits = self._waited + (now - min(self._waiting.values()) if self._waiting else 0.0)
        return round(max(0.0, now - self._began - waits), 4)


def _seconds_in(value: object) -> float:
    """Return the waiting time that a client reported; anything but a positive finite number counts as 0."""
    return float(value) if isinstance(value, int | float) and 0 < value < float("inf") else 0.0

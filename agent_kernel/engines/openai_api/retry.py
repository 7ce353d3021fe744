"""Decides whether and when a failed request is sent again: a few times, after increasing pauses. ``engine.py`` decides
what is sent: the request itself, or one for the rest of its answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from agent_kernel.core.errors import AgentKernelError

AGAIN = frozenset({408, 429, 500, 502, 503, 504, 529})
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0
LONGEST_ASKED_S = 60.0
"""Maximum pause in seconds that a server may request with Retry-After. If it requests a longer one, the request
fails."""


class EngineFault(Exception):
    """A failed request. If ``may_retry`` is true, the request may be sent again; otherwise, or when no tries are
    left, the caller gets ``error``. ``after_s`` is the pause in seconds that the server requests, None if it requests
    none."""

    def __init__(self, error: AgentKernelError, *, may_retry: bool, after_s: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.may_retry = may_retry
        self.after_s = after_s


@dataclass(slots=True)
class Retries:
    """Counts how often one request was sent, at most ``tries`` times in all. ``draw`` returns a random number in [0, 1)
    that varies the pauses, so that the clients of one server do not all retry at the same time."""

    tries: int
    draw: Callable[[], float] = random.random
    failed: int = 0

    def pause(self, fault: EngineFault) -> float | None:
        """Record that a try has failed with ``fault``. Return the seconds to wait before the next try; None if the
        request must not be sent again."""
        self.failed += 1
        if not fault.may_retry or self.failed >= self.tries:
            return None
        if fault.after_s is not None:
            return fault.after_s if fault.after_s <= LONGEST_ASKED_S else None
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self.failed - 1))
        return longest * (0.5 + self.draw() / 2)

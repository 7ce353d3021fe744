"""Compares the window that selectools saves with the stored messages: how many are new, and where they differ. The
functions have no side effects.

selectools saves the whole window of its memory after every run. Only the new messages are appended here, so that
nothing that has left the window is lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Window:
    """The window of the memory that was saved last, as it is stored in the session's metadata: its limits, its summary,
    and its number of messages (``count``) when the newest item of the session had the sequence number ``head``."""

    max_messages: int = 20
    max_tokens: int | None = None
    summary: str | None = None
    count: int = 20
    head: int = 0

    @classmethod
    def of(cls, facts: Any) -> Window | None:
        """Read a window from the metadata ``facts`` of a session. Returns None for values that this version did not
        write."""
        names = ("max_messages", "count", "head")
        if not isinstance(facts, Mapping) or not all(type(facts.get(name)) is int for name in names):
            return None
        tokens, summary = facts.get("max_tokens"), facts.get("summary")
        return cls(facts["max_messages"], tokens, summary, facts["count"], facts["head"])

    def at(self, head: int) -> int:
        """Return the number of messages in the window if the session's newest item has the sequence number ``head``.
        Messages that were stored after the window was saved count too, up to the window's limit.
        """
        since = max(0, head - self.head)
        return max(self.count, min(self.max_messages, self.count + since)) if since else self.count


@dataclass(frozen=True, slots=True)
class Divergence:
    """The position at which a window differs from the stored messages: its first ``same`` messages match the stored
    messages from index ``start`` on, and the next message of the window differs."""

    start: int
    same: int


def text_of(body: Mapping[str, Any]) -> str:
    """Return a message of selectools as text, so that messages can be compared. Raises TypeError for a message that is
    not JSON."""
    return json.dumps(body, sort_keys=True, ensure_ascii=False)


def overlap(stored: Sequence[str], window: Sequence[str]) -> int:
    """Return the number of messages at the beginning of ``window`` that are also the newest stored messages."""
    for count in range(min(len(stored), len(window)), 0, -1):
        if stored[len(stored) - count :] == window[:count]:
            return count
    return 0


def find_divergence(stored: Sequence[str], window: Sequence[str]) -> Divergence | None:
    """Return where the window begins in the stored messages and where it starts to differ. If it can begin at several
    places, the place with the longest match is returned; None if the first message of the window is not stored."""
    divergences: list[Divergence] = []
    for start in range(len(stored)):
        same = 0
        while same < min(len(window), len(stored) - start) and stored[start + same] == window[same]:
            same += 1
        if same:
            divergences.append(Divergence(start, same))
    return max(divergences, key=lambda each: each.same, default=None)

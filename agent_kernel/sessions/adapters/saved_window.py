"""A saved window of a conversation against what is stored of it: what is new, and where they part. Pure.

selectools saves the whole window of its memory after every run; here only what is new of it is appended, so that
nothing it has dropped from the window is lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Window:
    """What the metadata of a session say of the memory that was saved last: its limits, its summary, how many messages
    it had when the session was at item ``head``."""

    max_messages: int = 20
    max_tokens: int | None = None
    summary: str | None = None
    count: int = 20
    head: int = 0

    @classmethod
    def of(cls, facts: Any) -> Window | None:
        """None: nothing that this version wrote."""
        names = ("max_messages", "count", "head")
        if not isinstance(facts, Mapping) or not all(type(facts.get(name)) is int for name in names):
            return None
        tokens, summary = facts.get("max_tokens"), facts.get("summary")
        return cls(facts["max_messages"], tokens, summary, facts["count"], facts["head"])

    def at(self, head: int) -> int:
        """How many messages it has when the session is at ``head``: what was said since comes in, up to its limit."""
        since = max(0, head - self.head)
        return max(self.count, min(self.max_messages, self.count + since)) if since else self.count


@dataclass(frozen=True, slots=True)
class Parting:
    """Of the messages ``stored``, the first ``same`` of the window stand from ``start`` on; then they differ."""

    start: int
    same: int


def text_of(body: Mapping[str, Any]) -> str:
    """By which two messages are the same. Raises TypeError for what is no JSON."""
    return json.dumps(body, sort_keys=True, ensure_ascii=False)


def overlap(stored: Sequence[str], window: Sequence[str]) -> int:
    """How many of the first messages of the window are the newest of what is stored."""
    for count in range(min(len(stored), len(window)), 0, -1):
        if stored[len(stored) - count :] == window[:count]:
            return count
    return 0


def parting(stored: Sequence[str], window: Sequence[str]) -> Parting | None:
    """Where the window begins in what is stored and goes on otherwise; of several the longest agreement. None: its
    beginning is not there."""
    found: list[Parting] = []
    for start in range(len(stored)):
        same = 0
        while same < min(len(window), len(stored) - start) and stored[start + same] == window[same]:
            same += 1
        if same:
            found.append(Parting(start, same))
    return max(found, key=lambda each: each.same, default=None)

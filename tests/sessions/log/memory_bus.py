"""Messages between servers of one process."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent_kernel.core.errors import StoreError
from agent_kernel.sessions.log.message_bus import BusMessage, EventCount, EventCounter, Post, SharedValue, Topic


class MemoryBus:
    """A MessageBus in memory; servers that share it share its messages."""

    def __init__(self) -> None:
        self.name = "The bus in memory"
        self._changed = threading.Condition()
        self._positions = itertools.count(1)
        self._values: dict[tuple[str, str], tuple[float, float, SharedValue]] = {}
        self._messages: dict[Topic, list[tuple[float, BusMessage]]] = {}
        self._counted: dict[tuple[str, str], dict[str, float]] = {}

    def send(self, posts: Sequence[Post]) -> None:
        with self._changed:
            for post in posts:
                now = time.monotonic()
                kept = [] if post.replaces else [pair for pair in self._messages.get(post.topic, []) if pair[0] > now]
                kept.append((now + post.keep_s, BusMessage(post.topic, next(self._positions), post.body)))
                self._messages[post.topic] = kept
            self._changed.notify_all()

    def receive(self, after: Mapping[Topic, int], wait_s: float) -> Sequence[BusMessage]:
        with self._changed:
            self._changed.wait_for(lambda: self._find(after), wait_s)
            return self._find(after)

    def _find(self, after: Mapping[Topic, int]) -> Sequence[BusMessage]:
        now = time.monotonic()
        return [
            message
            for topic, seen in after.items()
            for until, message in self._messages.get(topic, [])
            if message.position > seen and until > now
        ]

    def get_value(self, namespace: str, name: str) -> SharedValue | None:
        written, keep_s, value = self._values.get((namespace, name), (0.0, 0.0, None))
        age = time.monotonic() - written
        return replace(value, age_s=age) if value is not None and age < keep_s else None

    def swap_value(self, namespace: str, name: str, expect: str, value: SharedValue | None, keep_s: float) -> bool:
        with self._changed:
            known = self.get_value(namespace, name)
            if (version := known.version if known else "") != expect:
                return version == (value.version if value else "")
            self._values.pop((namespace, name), None)
            if value is not None:
                self._values[namespace, name] = time.monotonic(), keep_s, value
            return True

    def count_event(self, event: str, counters: Sequence[EventCounter], window_s: float) -> Sequence[EventCount]:
        with self._changed:
            now, counts = time.monotonic(), list[EventCount]()
            for counter in counters:
                known = self._counted.setdefault((counter.namespace, counter.name), {})
                recent = sorted(at for one, at in known.items() if one != event and at > now - window_s)
                is_full = len(recent) >= counter.limit
                counts.append(EventCount(len(recent), recent[-counter.limit] + window_s - now if is_full else 0.0))
            if event and not any(count.wait_s for count in counts):
                for counter in counters:
                    self._counted[counter.namespace, counter.name].setdefault(event, now)
            return counts

    def renew_events(self, counted: Sequence[tuple[str, EventCounter]], window_s: float) -> None:
        with self._changed:
            for event, counter in counted:
                self._counted.setdefault((counter.namespace, counter.name), {})[event] = time.monotonic()

    def uncount_event(self, event: str, counters: Sequence[EventCounter]) -> None:
        with self._changed:
            for counter in counters:
                self._counted.get((counter.namespace, counter.name), {}).pop(event, None)

    def close(self) -> None:
        """Do nothing, because there is no connection."""


class WatchedBus(MemoryBus):
    """A bus that counts the calls that concern events, and can be unreachable."""

    is_away = False
    calls = 0

    def count_event(self, event: str, counters: Sequence[EventCounter], window_s: float) -> Sequence[EventCount]:
        self.calls += 1
        if self.is_away:
            raise StoreError("the database is away", hint="Try again.")
        return super().count_event(event, counters, window_s)

    def renew_events(self, counted: Sequence[tuple[str, EventCounter]], window_s: float) -> None:
        self.calls += 1
        if self.is_away:
            raise StoreError("the database is away", hint="Try again.")
        super().renew_events(counted, window_s)

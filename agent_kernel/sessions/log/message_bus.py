"""Defines the interface to the data that servers with a shared database share in addition to sessions: messages that
are stored for a bounded time under topics, values under names, and counts of recent events."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent_kernel.core.errors import StoreError

Topic = tuple[str, str]
"""(namespace, name). The namespace "" stands for messages between servers that belong to no namespace."""
PAGE = 500
"""Maximum number of messages that one ``receive`` returns."""
CHANGE_WITHIN_S = 10.0
MAX_PAUSE_S = 0.01
"""The longest pause in seconds before a value is changed again, after another server changed it at the same time."""


@dataclass(frozen=True, slots=True)
class Post:
    """A message to be sent. It is deleted after ``keep_s`` seconds. If ``replaces`` is true, sending it deletes all
    earlier messages of its topic."""

    topic: Topic
    body: bytes
    keep_s: float
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class BusMessage:
    """A message that was received. Positions of a topic increase in the order in which its messages were sent, even
    after messages were lost.
    """

    topic: Topic
    position: int
    body: bytes


@dataclass(frozen=True, slots=True)
class SharedValue:
    """A value under a name, kept for a bounded time. The writer chooses ``version``, which is not encrypted. ``age_s``:
    how many seconds ago it was written, by the clock of the database."""

    version: str
    body: bytes
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EventCounter:
    """Counts events under a name. At most ``limit`` of them (1 or more) may happen within the time window that the
    caller passes."""

    namespace: str
    name: str
    limit: int


@dataclass(frozen=True, slots=True)
class EventCount:
    """The state of an EventCounter. ``number`` is how many events were counted within the time window. ``wait_s`` is
    the number of seconds until another event is allowed; 0 if an event is allowed now."""

    number: int
    wait_s: float = 0.0


class MessageBus(Protocol):
    """Messages, values under names, and counts of events, in a shared database. A crash of the database may lose
    messages and counts, so a receiver has to notice what it missed. Values are as durable as the entries of the log.

    One thread calls ``receive``, and one other thread the other methods. Every method raises StoreError when the
    database cannot be used, and works again as soon as the database can be used."""

    name: str

    def send(self, posts: Sequence[Post]) -> None:
        """Send all messages, in their order. Posts of one call become visible together."""

    def receive(self, after: Mapping[Topic, int], wait_s: float) -> Sequence[BusMessage]:
        """Return messages of these topics after these positions (0: from the oldest stored one), in order. Waits at
        most ``wait_s`` seconds for the first message. A message that cannot be read has an empty body.
        """

    def get_value(self, namespace: str, name: str) -> SharedValue | None:
        """Return the value under a name; None if there is none or it has expired."""

    def swap_value(self, namespace: str, name: str, expect: str, value: SharedValue | None, keep_s: float) -> bool:
        """Replace the value of version ``expect`` (an empty string: no value exists) for ``keep_s`` seconds; None
        deletes it. Returns False, without a change, if the stored value has another version. Returns True if the stored
        value already has the version of ``value``, so that a caller that received no reply can repeat the call.
        """

    def count_event(self, event: str, counters: Sequence[EventCounter], window_s: float) -> Sequence[EventCount]:
        """Count an event under all of these counters. If one of them has reached its limit of events within the last
        ``window_s`` seconds, by the clock of the database, the event is counted under none. Returns the counts before
        this event. ``event`` is the unique name of the event, so that a repeated call counts once; with an empty name
        nothing is counted. The call takes one round trip.
        """

    def renew_events(self, counted: Sequence[tuple[str, EventCounter]], window_s: float) -> None:
        """Count each of these events as if it happened now, by the clock of the database, so that it is counted for
        another ``window_s`` seconds. Limits are not checked, and an event that was forgotten is counted again."""

    def uncount_event(self, event: str, counters: Sequence[EventCounter]) -> None:
        """Remove an event that was counted under these counters."""

    def close(self) -> None:
        """Release the connections, after the last ``receive`` has returned. A later call connects again."""


def change_value(
    bus: MessageBus, namespace: str, name: str, change: Callable[[bytes | None], bytes | None], keep_s: float
) -> None:
    """Replace the body of a value with the result of ``change``; None stands for no value. No change of another server
    is lost: if another server wrote at the same time, ``change`` is called again with the new body. Nothing is written
    if ``change`` returns the body that it was given. Raises StoreError, and what ``change`` raises.
    """
    end = time.monotonic() + CHANGE_WITHIN_S
    while True:
        known = bus.get_value(namespace, name)
        before = None if known is None else known.body
        after = change(before)
        if after == before:
            return
        value = None if after is None else SharedValue(secrets.token_hex(8), after)
        if bus.swap_value(namespace, name, known.version if known else "", value, keep_s):
            return
        if time.monotonic() > end:
            raise StoreError(
                f"{bus.name}: a value could not be changed within {CHANGE_WITHIN_S:.0f} seconds, because other servers "
                "kept changing it.",
                hint="Nothing was written. Try again.",
            )
        # The pause is random, so that two writers do not collide again and again.
        time.sleep(random.random() * MAX_PAUSE_S)

"""What servers with a shared database send each other: messages that are kept for a bounded time, under topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Topic = tuple[str, str]
"""(namespace, name). The namespace "" stands for messages between servers that belong to no namespace."""
PAGE = 500
"""Messages that one ``receive`` returns at most."""


@dataclass(frozen=True, slots=True)
class Post:
    """A message to be sent. It is deleted ``keep_s`` seconds later, or when a post that ``replaces`` all earlier
    messages of its topic follows."""

    topic: Topic
    body: bytes
    keep_s: float
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class BusMessage:
    """Positions of a topic grow in the order in which its messages were sent, also after messages were lost."""

    topic: Topic
    position: int
    body: bytes


@dataclass(frozen=True, slots=True)
class SharedValue:
    """A value under a name, kept for a bounded time. ``version`` is chosen by whoever writes it, and is not encrypted.
    ``age_s``: how many seconds ago it was written, by the clock of the database."""

    version: str
    body: bytes
    age_s: float = 0.0


class MessageBus(Protocol):
    """Messages, and values under names, in a shared database. Messages survive no crash of the database, so a receiver
    has to notice what it missed; values survive what entries of the log survive.

    One thread calls ``receive``, and one other thread the other methods. Every method raises StoreError when the
    database cannot be used, and works again when it can."""

    name: str

    def send(self, posts: Sequence[Post]) -> None:
        """Send all messages, in their order. Posts of one call become visible together."""

    def receive(self, after: Mapping[Topic, int], wait_s: float) -> Sequence[BusMessage]:
        """Return messages of these topics behind these positions (0: from the oldest one kept), in their order. Waits
        at most ``wait_s`` seconds for the first one. An empty body is that of a message that cannot be read."""

    def get_value(self, namespace: str, name: str) -> SharedValue | None:
        """Return the value under a name; None if there is none (any more)."""

    def swap_value(self, namespace: str, name: str, expect: str, value: SharedValue | None, keep_s: float) -> bool:
        """Replace the value of the version ``expect`` ("": there is none), for ``keep_s`` seconds; None deletes it.
        Returns False if another version is there, unless it is that of ``value``, so that a call can be repeated."""

    def close(self) -> None:
        """Release the connections, after the last ``receive`` has returned. A later call connects again."""

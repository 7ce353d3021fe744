"""Messages between servers in Redis or Valkey: a stream for each topic, ``topic:LENGTH:NAMESPACE:NAME``, a hash for
each value, ``value:LENGTH:NAMESPACE:NAME``, and a sorted set of the times of counted events,
``count:LENGTH:NAMESPACE:NAME``. All of them expire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.sessions.log.message_bus import (
    PAGE,
    BusMessage,
    EventCount,
    EventCounter,
    Post,
    SharedValue,
    Topic,
)
from agent_kernel.sessions.log.redis_connection import RedisConnection

_COUNT_BITS = 20
"""Redis numbers the messages of one millisecond; the position has this number in its lowest bits."""


class RedisBus:
    """A MessageBus in the Redis, Valkey or cluster that ``url`` names, with a connection for each of its two threads.
    A topic without a new message for as long as its last one is kept is deleted."""

    def __init__(self, url: str) -> None:
        self._sender = RedisConnection(url, "redis_bus.lua")
        self._receiver = RedisConnection(url, "redis_bus.lua")
        self.name = self._sender.name

    def __repr__(self) -> str:
        return f"RedisBus({self.name!r})"

    def send(self, posts: Sequence[Post]) -> None:
        keys = [self._sender.pair("topic", *post.topic) for post in posts]
        given = [word for post in posts for word in (post.body, round(post.keep_s * 1000), int(post.replaces))]
        self._sender.run("send", keys, given)

    def receive(self, after: Mapping[Topic, int], wait_s: float) -> Sequence[BusMessage]:
        topics = {self._receiver.pair("topic", *topic): topic for topic in after}
        streams = {key: _to_id(after[topic]) for key, topic in topics.items()}
        block = max(1, round(wait_s * 1000))
        reply: Any = self._receiver.use(lambda client: client.xread(streams, count=PAGE, block=block))
        return [
            BusMessage(topics[key.decode()], _to_position(id), fields[b"b"])
            for key, entries in reply or ()
            for id, fields in entries
        ]

    def get_value(self, namespace: str, name: str) -> SharedValue | None:
        reply = self._sender.run("get", [self._sender.pair("value", namespace, name)], [])
        return None if reply is None else SharedValue(reply[0].decode(), reply[1], float(reply[2]))

    def swap_value(self, namespace: str, name: str, expect: str, value: SharedValue | None, keep_s: float) -> bool:
        version, body = ("", b"") if value is None else (value.version, value.body)
        key = self._sender.pair("value", namespace, name)
        return bool(self._sender.run("swap", [key], [expect, version, body, round(keep_s * 1000)]))

    def count_event(self, event: str, counters: Sequence[EventCounter], window_s: float) -> Sequence[EventCount]:
        limits = [counter.limit for counter in counters]
        counts = self._sender.run("count", self._count_keys(counters), [event, round(window_s * 1e6), *limits])
        return [EventCount(int(counts[at]), int(counts[at + 1]) / 1e6) for at in range(0, len(counts), 2)]

    def renew_events(self, counted: Sequence[tuple[str, EventCounter]], window_s: float) -> None:
        keys = self._count_keys([counter for _, counter in counted])
        self._sender.run("renew", keys, [round(window_s * 1000), *(event for event, _ in counted)])

    def uncount_event(self, event: str, counters: Sequence[EventCounter]) -> None:
        self._sender.run("uncount", self._count_keys(counters), [event])

    def _count_keys(self, counters: Sequence[EventCounter]) -> list[str]:
        return [self._sender.pair("count", counter.namespace, counter.name) for counter in counters]

    def close(self) -> None:
        self._sender.close()
        self._receiver.close()


def _to_id(position: int) -> str:
    return f"{position >> _COUNT_BITS}-{position & (1 << _COUNT_BITS) - 1}"


def _to_position(id: bytes) -> int:
    milliseconds, _, count = id.partition(b"-")
    return int(milliseconds) << _COUNT_BITS | int(count)

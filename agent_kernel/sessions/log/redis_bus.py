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
_SEND = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for i, key in ipairs(KEYS) do
    local body, keep, replaces = ARGV[3 * i - 2], tonumber(ARGV[3 * i - 1]), ARGV[3 * i]
    -- A stream that is trimmed, not deleted, remembers its last id, so that ids always grow.
    if replaces == '1' then redis.call('XTRIM', key, 'MAXLEN', 0) end
    redis.call('XADD', key, 'MINID', '~', string.format('%.0f', now - keep), '*', 'b', body)
    redis.call('PEXPIRE', key, string.format('%.0f', keep))
end
return #KEYS
"""
_TIME = "local t = redis.call('TIME'); local now = t[1] + t[2] / 1000000\n"
_SWAP = (
    _TIME
    + """
local version = redis.call('HGET', KEYS[1], 'version') or ''
if version ~= ARGV[1] then return version == ARGV[2] and 1 or 0 end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' then
    redis.call('HSET', KEYS[1], 'version', ARGV[2], 'body', ARGV[3], 'written', string.format('%.6f', now))
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
return 1
"""
)
_GET = (
    _TIME
    + """
local found = redis.call('HMGET', KEYS[1], 'version', 'body', 'written')
if not found[1] then return false end
return {found[1], found[2], string.format('%.6f', now - found[3])}
"""
)
_COUNT = """
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local event, window, is_full, found = ARGV[1], tonumber(ARGV[2]), false, {}
for i, key in ipairs(KEYS) do
    redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now - window))
    local number, wait, limit = redis.call('ZCARD', key), 0, tonumber(ARGV[i + 2])
    -- A call that is repeated does not count itself.
    if redis.call('ZSCORE', key, event) then number = number - 1 end
    if number >= limit then
        is_full = true
        wait = redis.call('ZREVRANGE', key, limit - 1, limit - 1, 'WITHSCORES')[2] + window - now
    end
    found[2 * i - 1] = number
    found[2 * i] = string.format('%.0f', wait)
end
if event ~= '' and not is_full then
    for _, key in ipairs(KEYS) do
        redis.call('ZADD', key, 'NX', string.format('%.0f', now), event)
        redis.call('PEXPIRE', key, string.format('%.0f', window / 1000))
    end
end
return found
"""
_RENEW = """
local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000000 + t[2])
for i, key in ipairs(KEYS) do
    redis.call('ZADD', key, now, ARGV[i + 1])
    redis.call('PEXPIRE', key, ARGV[1])
end
return #KEYS
"""
_UNCOUNT = """
for _, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[1]) end
return #KEYS
"""


class RedisBus:
    """A MessageBus in the Redis, Valkey or cluster that ``url`` names, with a connection for each of its two threads.
    A topic without a new message for as long as its last one is kept is deleted."""

    def __init__(self, url: str) -> None:
        self._sender = RedisConnection(url)
        self._receiver = RedisConnection(url)
        self.name = self._sender.name

    def __repr__(self) -> str:
        return f"RedisBus({self.name!r})"

    def send(self, posts: Sequence[Post]) -> None:
        keys = [self._sender.pair("topic", *post.topic) for post in posts]
        given = [word for post in posts for word in (post.body, round(post.keep_s * 1000), int(post.replaces))]
        self._sender.run(_SEND, keys, given)

    def receive(self, after: Mapping[Topic, int], wait_s: float) -> Sequence[BusMessage]:
        topics = {self._receiver.pair("topic", *topic): topic for topic in after}
        streams = {key: _to_id(after[topic]) for key, topic in topics.items()}
        block = max(1, round(wait_s * 1000))
        found: Any = self._receiver.use(lambda client: client.xread(streams, count=PAGE, block=block))
        return [
            BusMessage(topics[key.decode()], _to_position(id), fields[b"b"])
            for key, entries in found or ()
            for id, fields in entries
        ]

    def get_value(self, namespace: str, name: str) -> SharedValue | None:
        found = self._sender.run(_GET, [self._sender.pair("value", namespace, name)], [])
        return None if found is None else SharedValue(found[0].decode(), found[1], float(found[2]))

    def swap_value(self, namespace: str, name: str, expect: str, value: SharedValue | None, keep_s: float) -> bool:
        version, body = ("", b"") if value is None else (value.version, value.body)
        key = self._sender.pair("value", namespace, name)
        return bool(self._sender.run(_SWAP, [key], [expect, version, body, round(keep_s * 1000)]))

    def count_event(self, event: str, counters: Sequence[EventCounter], window_s: float) -> Sequence[EventCount]:
        limits = [counter.limit for counter in counters]
        found = self._sender.run(_COUNT, self._count_keys(counters), [event, round(window_s * 1e6), *limits])
        return [EventCount(int(found[at]), int(found[at + 1]) / 1e6) for at in range(0, len(found), 2)]

    def renew_events(self, counted: Sequence[tuple[str, EventCounter]], window_s: float) -> None:
        keys = self._count_keys([counter for _, counter in counted])
        self._sender.run(_RENEW, keys, [round(window_s * 1000), *(event for event, _ in counted)])

    def uncount_event(self, event: str, counters: Sequence[EventCounter]) -> None:
        self._sender.run(_UNCOUNT, self._count_keys(counters), [event])

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

"""The log of several servers in Redis or Valkey: sorted sets, and Lua scripts that each write all or nothing.

All keys begin with ``{PREFIX}:``, so a cluster keeps them on one node, where one script can use several of them:

- ``version``: the format of the keys;
- ``namespaces`` (sorted set): the names of all namespaces, in the order of their bytes;
- ``positions`` (hash): the last position of each namespace;
- ``log:NAMESPACE`` (sorted set): the entries by their position;
- ``stream:LENGTH:NAMESPACE:SESSION`` (list): the positions of the entries of one session;
- ``commit:ID`` (expires after a day): the positions that a commit received, separated by spaces;
- ``blobs`` (sorted set) and ``blob:LENGTH:NAMESPACE:DIGEST``: when bytes were stored or touched, and the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agent_kernel.sessions.log.log_store import GRACE_S, Append, Entry, LogConflict, Stream, Tail, map_positions
from agent_kernel.sessions.log.redis_bus import RedisBus
from agent_kernel.sessions.log.redis_connection import RedisConnection, member

PAGE = 2000
"""Maximum number of entries that one ``read`` returns."""
COMMIT_KEPT_S = 86_400
"""Seconds for which the id of a commit is remembered, so that the commit can be repeated."""
_NOW = "local t = redis.call('TIME'); local now = t[1] + t[2] / 1000000\n"
_READ = (
    _NOW
    + """
local seen, names, found, room = {}, {}, {}, tonumber(ARGV[2])
for i = 4, #ARGV, 2 do
    names[#names + 1] = ARGV[i]
    seen[ARGV[i]] = tonumber(ARGV[i + 1])
end
if ARGV[3] == 'all' then names = redis.call('ZRANGE', KEYS[1], 0, -1) end
for _, name in ipairs(names) do
    local after = seen[name] or 0
    local last = tonumber(redis.call('HGET', KEYS[2], name) or 0)
    if last < after then return redis.error_reply('LOST') end
    seen[name] = nil
    if last > after and room > 0 then
        local entries = redis.call('ZRANGEBYSCORE', ARGV[1] .. name, '(' .. after, '+inf', 'LIMIT', 0, room)
        room = room - #entries
        found[#found + 1] = {name, entries}
    end
end
for _, after in pairs(seen) do if after > 0 then return redis.error_reply('LOST') end end
if #found == 0 then return string.format('%.6f', now) end
return {string.format('%.6f', now), room <= 0 and 1 or 0, found}
"""
)
_COMMIT = """
local function split(text)
    local words = {}
    for word in string.gmatch(text, '%d+') do words[#words + 1] = word end
    return words
end
local known = redis.call('GET', KEYS[3])
if known then return split(known) end
local last = 2 + 4 * tonumber(ARGV[1])
for i = last + 1, #ARGV, 2 do
    if (redis.call('HGET', KEYS[2], ARGV[i]) or '0') ~= ARGV[i + 1] then return false end
end
local key = 3
for i = 3, last, 4 do
    if (redis.call('LINDEX', KEYS[key + 2], -1) or '0') ~= ARGV[i + 1] then return false end
    key = key + 2
end
local places = {}
key = 3
for i = 3, last, 4 do
    local name, flag, log, stream = ARGV[i], ARGV[i + 2], KEYS[key + 1], KEYS[key + 2]
    key = key + 2
    local place = 0
    if flag ~= 'check' then
        place = redis.call('HINCRBY', KEYS[2], name, 1)
        if place == 1 then redis.call('ZADD', KEYS[1], 0, name) end
        if flag == 'replace' then
            for _, old in ipairs(redis.call('LRANGE', stream, 0, -1)) do
                redis.call('ZREMRANGEBYSCORE', log, old, old)
            end
            redis.call('DEL', stream)
        end
        local text = string.format('%.0f', place)
        redis.call('ZADD', log, text, text .. ':' .. ARGV[i + 3])
        redis.call('RPUSH', stream, text)
    end
    places[#places + 1] = string.format('%.0f', place)
end
if #places > 0 then redis.call('SET', KEYS[3], table.concat(places, ' '), 'EX', ARGV[2]) end
return places
"""
_PUT = (
    _NOW
    + """
if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SET', KEYS[2], ARGV[2]) end
redis.call('ZADD', KEYS[1], string.format('%.6f', now), ARGV[1])
"""
)
_TOUCH = (
    _NOW
    + """
for _, blob in ipairs(ARGV) do redis.call('ZADD', KEYS[1], 'XX', string.format('%.6f', now), blob) end
"""
)
_OLD = (
    _NOW
    + """
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.6f', now - ARGV[1]))
"""
)
_DROP = (
    _NOW
    + """
local freed = 0
for i, blob in ipairs(ARGV) do
    if i > 1 then
        local stored = redis.call('ZSCORE', KEYS[1], blob)
        if stored and tonumber(stored) <= now - ARGV[1] then
            freed = freed + redis.call('STRLEN', KEYS[i])
            redis.call('DEL', KEYS[i])
            redis.call('ZREM', KEYS[1], blob)
        end
    end
end
return freed
"""
)
_DROPPED_AT_ONCE = 500


class RedisLog:
    """A LogStore in the Redis, Valkey or cluster that ``url`` names (redis://... or rediss://... with TLS). ``prefix``
    in the URL's query separates several logs in one database. It connects at the first use, and again after the
    connection broke. Raises InvalidRequest for a URL that cannot be parsed, or if redis-py is not installed."""

    compares = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = RedisConnection(url)
        self.name = self._connection.name

    def __repr__(self) -> str:
        return f"RedisLog({self.name!r})"

    def read(self, after: Mapping[str, int], among: Collection[str] | None = None) -> Tail:
        selected = after if among is None else {name: after.get(name, 0) for name in sorted(among)}
        seen = [word for pair in selected.items() for word in pair]
        keys = [self._connection.key("namespaces"), self._connection.key("positions")]
        which = "all" if among is None else "some"
        answer = self._connection.run(_READ, keys, [self._connection.key("log:"), PAGE, which, *seen])
        if isinstance(answer, bytes):  # only the time: there are no new entries
            return Tail(float(answer), [])
        now, more, found = answer
        entries = [_unpack(name.decode(), entry) for name, packed in found for entry in packed]
        return Tail(float(now), entries, bool(more))

    def commit(
        self, id: str, appends: Sequence[Append], after: Mapping[str, int] | None = None
    ) -> Mapping[Stream, int]:
        keys = [
            self._connection.key("namespaces"),
            self._connection.key("positions"),
            self._connection.key(f"commit:{id}"),
        ]
        given: list[Any] = [len(appends), COMMIT_KEPT_S]
        for one in appends:
            keys += [
                self._connection.key(f"log:{one.namespace}"),
                self._connection.pair("stream", one.namespace, one.session),
            ]
            flag = "check" if one.body is None else "replace" if one.replaces else "append"
            given += [one.namespace, one.expect, flag, _pack(one)]
        given += [word for pair in (after or {}).items() for word in pair]
        positions = self._connection.run(_COMMIT, keys, given)
        if positions is None:
            raise LogConflict
        return map_positions(appends, positions)

    def put_blob(self, namespace: str, digest: str, data: bytes) -> None:
        place = self._connection.pair("blob", namespace, digest)
        self._connection.run(_PUT, [self._connection.key("blobs"), place], [member(namespace, digest), data])

    def get_blob(self, namespace: str, digest: str) -> bytes | None:
        key = self._connection.pair("blob", namespace, digest)
        found: bytes | None = self._connection.use(lambda client: client.get(key))
        return found

    def touch_blobs(self, namespace: str, digests: Collection[str]) -> None:
        self._connection.run(_TOUCH, [self._connection.key("blobs")], [member(namespace, digest) for digest in digests])

    def drop_blobs(self, named: Collection[tuple[str, str]], grace: float = GRACE_S) -> int:
        kept = {member(namespace, digest).encode() for namespace, digest in named}
        found = [
            blob for blob in self._connection.run(_OLD, [self._connection.key("blobs")], [grace]) if blob not in kept
        ]
        freed = 0
        for at in range(0, len(found), _DROPPED_AT_ONCE):
            part = found[at : at + _DROPPED_AT_ONCE]
            keys = [self._connection.key("blobs"), *(self._connection.key("blob:").encode() + blob for blob in part)]
            freed += self._connection.run(_DROP, keys, [grace, *part])
        return freed

    def bus(self) -> RedisBus:
        return RedisBus(self._url)

    def close(self) -> None:
        self._connection.close()


def _pack(one: Append) -> bytes:
    session = one.session.encode()
    return struct.pack(">?I", one.replaces, len(session)) + session + (one.body or b"")


def _unpack(namespace: str, packed: bytes) -> Entry:
    position, _, rest = packed.partition(b":")
    replaces, length = struct.unpack_from(">?I", rest)
    return Entry(namespace, int(position), rest[5 : 5 + length].decode(), replaces, rest[5 + length :])

"""The log of several servers in Redis or Valkey: sorted sets, and Lua scripts that each write all or nothing.

All keys begin with ``{PREFIX}:``, so a cluster keeps them on one node, where one script can use several of them:

- ``version``: the format of the keys;
- ``namespaces`` (sorted set): the names of all namespaces, in the order of their bytes;
- ``positions`` (hash): the last position of each namespace;
- ``log:NAMESPACE`` (sorted set): the entries by their position;
- ``stream:LENGTH:NAMESPACE:SESSION`` (list): the positions of the entries of one session;
- ``commit:ID`` (expires after a day): the positions that a commit received;
- ``blobs`` (sorted set) and ``blob:LENGTH:NAMESPACE:DIGEST``: when bytes were stored or touched, and the bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from agent_kernel.core.errors import InvalidRequest, StoreCorrupt, StoreError
from agent_kernel.sessions.log.log_store import GRACE_S, Append, Entry, LogConflict, Stream, Tail

T = TypeVar("T")
VERSION = 1
PAGE = 2000
"""Maximum number of entries that one ``read`` returns."""
COMMIT_KEPT_S = 86_400
"""Seconds for which the id of a commit is remembered, so that the commit can be repeated."""
TIMEOUT_S = 20.0
PREFIX = "agent-kernel"
_OPTION = re.compile(r"ssl_(ca_certs|ca_path|certfile|keyfile|keyfile_password|cert_reqs|check_hostname)")
"""Options of redis-py that a URL may set. Others are refused, since some change how replies are decoded."""
_NOW = "local t = redis.call('TIME'); local now = t[1] + t[2] / 1000000\n"
_READ = (
    _NOW
    + """
local seen, found, room = {}, {}, tonumber(ARGV[2])
for i = 3, #ARGV, 2 do seen[ARGV[i]] = tonumber(ARGV[i + 1]) end
for _, name in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    local after = seen[name] or 0
    local last = tonumber(redis.call('HGET', KEYS[2], name))
    if last < after then return redis.error_reply('LOST') end
    seen[name] = nil
    if last > after and room > 0 then
        local entries = redis.call('ZRANGEBYSCORE', ARGV[1] .. name, '(' .. after, '+inf', 'LIMIT', 0, room)
        room = room - #entries
        found[#found + 1] = {name, entries}
    end
end
for _, after in pairs(seen) do if after > 0 then return redis.error_reply('LOST') end end
return {string.format('%.6f', now), room <= 0 and 1 or 0, found}
"""
)
_COMMIT = """
local known = redis.call('LRANGE', KEYS[3], 0, -1)
if #known > 0 then return known end
local count = #ARGV / 5
for i = 1, count do
    local expected = ARGV[5 * i - 3]
    local last = redis.call('LINDEX', KEYS[2 + 2 * i + 1], -1) or '0'
    if last ~= expected then return false end
end
local places = {}
for i = 1, count do
    local name, flag, body = ARGV[5 * i - 4], ARGV[5 * i - 2], ARGV[5 * i - 1]
    local log, stream = KEYS[2 + 2 * i], KEYS[2 + 2 * i + 1]
    local place = 0
    if flag ~= 'check' then
        redis.call('ZADD', KEYS[1], 0, name)
        place = redis.call('HINCRBY', KEYS[2], name, 1)
        if flag == 'replace' then
            for _, old in ipairs(redis.call('LRANGE', stream, 0, -1)) do
                redis.call('ZREMRANGEBYSCORE', log, old, old)
            end
            redis.call('DEL', stream)
        end
        local text = string.format('%.0f', place)
        redis.call('ZADD', log, text, text .. ':' .. body)
        redis.call('RPUSH', stream, text)
    end
    places[i] = string.format('%.0f', place)
    redis.call('RPUSH', KEYS[3], places[i])
end
if count > 0 then redis.call('EXPIRE', KEYS[3], ARGV[5 * count]) end
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

    def __init__(self, url: str) -> None:
        try:
            import redis
        except ImportError:
            raise InvalidRequest(
                "The store redis: needs redis-py.", hint="Install it: pip install 'agent-kernel[redis]'."
            ) from None
        self._redis = redis
        self._url = url
        try:
            self._options, self._prefix = _read_url(url, redis)
        except ValueError:
            # The library's message quotes parts of the URL, perhaps of its password.
            raise InvalidRequest(
                "The URL of the Redis store cannot be read.",
                hint="Use redis://USER:PASSWORD@HOST:PORT/NUMBER, with %-escapes for special characters; rediss:// uses"
                " TLS; the query may have prefix=NAME and the library's options ssl_...",
            ) from None
        place = f"{self._options.get('host', 'localhost')}:{self._options.get('port', 6379)}"
        self.name = f"The Redis store {self._prefix} at {place}"
        self._client: Any = None
        self._scripts: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"RedisLog({self.name!r})"

    def read(self, after: Mapping[str, int]) -> Tail:
        seen = [word for pair in after.items() for word in pair]
        keys = [self._key("namespaces"), self._key("positions")]
        now, more, found = self._run(_READ, keys, [self._key("log:"), PAGE, *seen])
        entries = [_unpack(name.decode(), entry) for name, packed in found for entry in packed]
        return Tail(float(now), entries, bool(more))

    def commit(self, id: str, appends: Sequence[Append]) -> Mapping[Stream, int]:
        keys = [self._key("namespaces"), self._key("positions"), self._key(f"commit:{id}")]
        given: list[Any] = []
        for one in appends:
            keys += [self._key(f"log:{one.namespace}"), self._pair("stream", one.namespace, one.session)]
            flag = "check" if one.body is None else "replace" if one.replaces else "append"
            given += [one.namespace, one.expect, flag, _pack(one), COMMIT_KEPT_S]
        positions = self._run(_COMMIT, keys, given)
        if positions is None:
            raise LogConflict
        return {
            (one.namespace, one.session): int(position)
            for one, position in zip(appends, positions, strict=True)
            if one.body is not None
        }

    def put_blob(self, namespace: str, digest: str, data: bytes) -> None:
        place = self._pair("blob", namespace, digest)
        self._run(_PUT, [self._key("blobs"), place], [_member(namespace, digest), data])

    def get_blob(self, namespace: str, digest: str) -> bytes | None:
        key = self._pair("blob", namespace, digest)
        found: bytes | None = self._retry(lambda: self._open().get(key))
        return found

    def touch_blobs(self, namespace: str, digests: Collection[str]) -> None:
        self._run(_TOUCH, [self._key("blobs")], [_member(namespace, digest) for digest in digests])

    def drop_blobs(self, named: Collection[tuple[str, str]], grace: float = GRACE_S) -> int:
        kept = {_member(namespace, digest).encode() for namespace, digest in named}
        found = [blob for blob in self._run(_OLD, [self._key("blobs")], [grace]) if blob not in kept]
        freed = 0
        for at in range(0, len(found), _DROPPED_AT_ONCE):
            part = found[at : at + _DROPPED_AT_ONCE]
            keys = [self._key("blobs"), *(self._key("blob:").encode() + blob for blob in part)]
            freed += self._run(_DROP, keys, [grace, *part])
        return freed

    def close(self) -> None:
        client, self._client = self._client, None
        self._scripts = {}
        if client is not None:
            client.close()

    def _key(self, name: str) -> str:
        return f"{{{self._prefix}}}:{name}"

    def _pair(self, kind: str, namespace: str, name: str) -> str:
        return self._key(f"{kind}:{_member(namespace, name)}")

    def _run(self, script: str, keys: Sequence[Any], given: Sequence[Any]) -> Any:
        """Run one script. Raises StoreError."""

        def run() -> Any:
            client = self._open()
            if script not in self._scripts:
                self._scripts[script] = client.register_script(script)
            return self._scripts[script](keys=keys, args=given)

        return self._retry(run)

    def _retry(self, work: Callable[[], T]) -> T:
        """Run ``work``. If the connection breaks, run it again on a new one: all scripts of this module can safely be
        repeated."""
        try:
            try:
                return work()
            except (self._redis.ConnectionError, self._redis.TimeoutError):
                self.close()
                return work()
        except self._redis.RedisError as error:
            self.close()
            raise self._to_store_error(error) from None

    def _open(self) -> Any:
        if self._client is None:
            client = self._connect()
            try:
                self._check(client)
            except BaseException:
                client.close()
                raise
            self._client = client
        return self._client

    def _connect(self) -> Any:
        """Connect to the server, or to all nodes of its cluster."""
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        options = {"protocol": 2, "socket_timeout": TIMEOUT_S, "socket_connect_timeout": 10.0, **self._options}
        client = self._redis.Redis(**options, retry=Retry(NoBackoff(), 0))
        try:
            if not client.info("cluster").get("cluster_enabled"):
                return client
        except BaseException:
            client.close()
            raise
        client.close()
        return self._redis.RedisCluster(**{key: value for key, value in options.items() if key != "db"})

    def _check(self, client: Any) -> None:
        """Raise StoreError if the keys have a newer format, or if the server is configured to delete keys when its
        memory is full."""
        client.set(self._key("version"), VERSION, nx=True)
        version = client.get(self._key("version"))
        if version != b"%d" % VERSION:
            raise StoreCorrupt(
                f"{self.name} was written by a newer agent-kernel (format {version!r}, this one knows {VERSION}).",
                hint="Nothing was changed. Upgrade agent-kernel, or name another database or prefix.",
            )
        if isinstance(client, self._redis.RedisCluster):
            node = client.get_node_from_key(self._key("version"))  # type: ignore[no-untyped-call]  # of the library
            memory = client.info("memory", target_nodes=node)
        else:
            memory = client.info("memory")
        if memory.get("maxmemory") and memory.get("maxmemory_policy", "noeviction") != "noeviction":
            raise StoreError(
                f"{self.name} would delete sessions when its memory is full (maxmemory-policy).",
                hint="Set maxmemory-policy to noeviction, or name a server that is no cache.",
            )

    def _to_store_error(self, error: Exception) -> StoreError:
        cause = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if cause.split(" ")[0] == "LOST" or cause.endswith(" LOST"):
            return StoreCorrupt(
                f"{self.name} lost acknowledged entries: it was emptied, or restarted from an older copy.",
                hint="Restart the servers of agent-kernel, and let Redis keep every write: appendonly yes.",
            )
        return StoreError(
            f"{self.name} cannot be used: {cause}",
            hint="Check that the server runs and can be reached. The store works again as soon as it does.",
        )


def _read_url(url: str, redis: Any) -> tuple[dict[str, Any], str]:
    """Return (options of the connection, prefix of the keys). Raises ValueError."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    prefixes = [value for name, value in query if name == "prefix"] or [PREFIX]
    if not re.fullmatch(r"[\w.:-]{1,100}", prefixes[-1]) or parts.fragment:
        raise ValueError("prefix or fragment")
    if any(name != "prefix" and not _OPTION.fullmatch(name) for name, _ in query):
        raise ValueError("option")
    if not re.fullmatch(r"/?\d{0,9}", parts.path):
        raise ValueError("number")
    options_left = urlencode([(name, value) for name, value in query if name != "prefix"])
    options: dict[str, Any] = dict(redis.connection.parse_url(urlunsplit(parts._replace(query=options_left))))
    if options.pop("connection_class", None) is not None:
        options["ssl"] = True
    return options, prefixes[-1]


def _member(namespace: str, name: str) -> str:
    """Join two names into one text. Different pairs give different texts."""
    return f"{len(namespace)}:{namespace}:{name}"


def _pack(one: Append) -> bytes:
    session = one.session.encode()
    return struct.pack(">?I", one.replaces, len(session)) + session + (one.body or b"")


def _unpack(namespace: str, packed: bytes) -> Entry:
    position, _, rest = packed.partition(b":")
    replaces, length = struct.unpack_from(">?I", rest)
    return Entry(namespace, int(position), rest[5 : 5 + length].decode(), replaces, rest[5 + length :])

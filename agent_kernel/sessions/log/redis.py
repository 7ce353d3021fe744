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

import functools
import hashlib
import re
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from agent_kernel.core.errors import InvalidRequest, StoreCorrupt, StoreError
from agent_kernel.sessions.log import log_errors
from agent_kernel.sessions.log.client_holder import ClientHolder, NamedClient, take_option
from agent_kernel.sessions.log.log_store import GRACE_S, Append, Entry, LogConflict, Stream, Tail, map_positions
from agent_kernel.sessions.log.message_bus import PAGE, BusMessage, EventCount, EventCounter, Post, SharedValue, Topic

LOG_PAGE = 2000
"""Maximum number of entries that one ``read`` returns."""
COMMIT_KEPT_S = 86_400
"""Seconds for which the id of a commit is remembered, so that the commit can be repeated."""
_DROPPED_AT_ONCE = 500
_COUNT_BITS = 20
"""Number of bits of a position for the number that Redis gives a message among the messages of the same millisecond.
These are the lowest bits; the others contain the time in milliseconds."""
T = TypeVar("T")
VERSION = 1
TIMEOUT_S = 20.0
PREFIX = "agent-kernel"
_OPTION = re.compile(r"ssl_(ca_certs|ca_path|certfile|keyfile|keyfile_password|cert_reqs|check_hostname)")
"""Options of redis-py that a URL may set. Other options are refused, since some change how replies are decoded."""


class RedisLog(NamedClient):
    """A LogStore in the Redis or Valkey server or cluster that ``url`` names (redis://... or rediss://... with TLS).
    ``prefix`` in the URL's query separates several logs in one database. It connects at the first use, and again after
    the connection broke. Raises InvalidRequest for a URL that cannot be parsed, or if redis-py is not installed."""

    compares = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = RedisConnection(url, "redis_log.lua")
        self.name = self._connection.name

    def read(self, after: Mapping[str, int], among: Collection[str] | None = None) -> Tail:
        selected = after if among is None else {name: after.get(name, 0) for name in sorted(among)}
        seen = [word for pair in selected.items() for word in pair]
        keys = [self._connection.key("namespaces"), self._connection.key("positions")]
        which = "all" if among is None else "some"
        answer = self._connection.run("read", keys, [self._connection.key("log:"), LOG_PAGE, which, *seen])
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
        for append in appends:
            keys += [
                self._connection.key(f"log:{append.namespace}"),
                self._connection.pair("stream", append.namespace, append.session),
            ]
            flag = "check" if append.body is None else "replace" if append.replaces else "append"
            given += [append.namespace, append.expect, flag, _pack(append)]
        given += [word for pair in (after or {}).items() for word in pair]
        positions = self._connection.run("commit", keys, given)
        if positions is None:
            raise LogConflict
        return map_positions(appends, positions)

    def put_blob(self, namespace: str, digest: str, data: bytes) -> None:
        place = self._connection.pair("blob", namespace, digest)
        self._connection.run("put", [self._connection.key("blobs"), place], [member(namespace, digest), data])

    def get_blob(self, namespace: str, digest: str) -> bytes | None:
        key = self._connection.pair("blob", namespace, digest)
        data: bytes | None = self._connection.use(lambda client: client.get(key))
        return data

    def touch_blobs(self, namespace: str, digests: Collection[str]) -> None:
        self._connection.run(
            "touch", [self._connection.key("blobs")], [member(namespace, digest) for digest in digests]
        )

    def drop_blobs(self, referenced: Collection[tuple[str, str]], grace: float = GRACE_S) -> int:
        kept_names = {member(namespace, digest).encode() for namespace, digest in referenced}
        found = [
            blob
            for blob in self._connection.run("old", [self._connection.key("blobs")], [grace])
            if blob not in kept_names
        ]
        freed = 0
        for at in range(0, len(found), _DROPPED_AT_ONCE):
            part = found[at : at + _DROPPED_AT_ONCE]
            keys = [self._connection.key("blobs"), *(self._connection.key("blob:").encode() + blob for blob in part)]
            freed += self._connection.run("drop", keys, [grace, *part])
        return freed

    def bus(self) -> RedisBus:
        return RedisBus(self._url)

    def close(self) -> None:
        self._connection.close()


def _pack(append: Append) -> bytes:
    session = append.session.encode()
    return struct.pack(">?I", append.replaces, len(session)) + session + (append.body or b"")


def _unpack(namespace: str, packed: bytes) -> Entry:
    position, _, rest = packed.partition(b":")
    replaces, length = struct.unpack_from(">?I", rest)
    return Entry(namespace, int(position), rest[5 : 5 + length].decode(), replaces, rest[5 + length :])


# Messages between servers in Redis or Valkey: a stream for each topic, ``topic:LENGTH:NAMESPACE:NAME``, a hash for
# each value, ``value:LENGTH:NAMESPACE:NAME``, and a sorted set of the times of counted events,
# ``count:LENGTH:NAMESPACE:NAME``. All of them expire.


class RedisBus(NamedClient):
    """A MessageBus in the Redis or Valkey server or cluster that ``url`` names, with a connection for each of its two
    threads. A topic is deleted when its newest message expires."""

    def __init__(self, url: str) -> None:
        self._sender = RedisConnection(url, "redis_bus.lua")
        self._receiver = RedisConnection(url, "redis_bus.lua")
        self.name = self._sender.name

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


# A connection to Redis or Valkey, and the names of keys. The connection is opened at the first use, and opened again
# after it broke.


class RedisConnection:
    """A connection for one thread at a time. ``scripts`` is the file of this folder that contains its Lua scripts.
    ``name`` is the name for messages to people. Raises InvalidRequest for a URL that cannot be parsed, or if redis-py
    is not installed."""

    def __init__(self, url: str, scripts: str) -> None:
        try:
            import redis
        except ImportError:
            raise log_errors.missing_package("redis", "redis", "redis") from None
        self._redis = redis
        self._scripts = scripts
        try:
            self._options, self._prefix = _read_url(url, redis)
        except ValueError:
            # The library's message quotes parts of the URL, which may include the password.
            raise InvalidRequest(
                "The URL of the Redis store cannot be read.",
                hint="Use redis://USER:PASSWORD@HOST:PORT/NUMBER, with %-escapes for special characters; rediss:// uses"
                " TLS; the query may have prefix=NAME and the library's options ssl_...",
            ) from None
        place = f"{self._options.get('host', 'localhost')}:{self._options.get('port', 6379)}"
        self.name = f"The Redis store {self._prefix} at {place}"
        self._client = ClientHolder(self._connect, self._check)

    def key(self, name: str) -> str:
        return f"{{{self._prefix}}}:{name}"

    def pair(self, kind: str, namespace: str, name: str) -> str:
        return self.key(f"{kind}:{member(namespace, name)}")

    def run(self, name: str, keys: Sequence[Any], arguments: Sequence[Any]) -> Any:
        """Run one script. Raises StoreError."""
        # The server finds a script that it already has by the digest. The library's own object for scripts takes a
        # fifth longer.
        script, digest = _read_scripts(self._scripts)[name]

        def run(client: Any) -> Any:
            try:
                return client.execute_command("EVALSHA", digest, len(keys), *keys, *arguments)
            except self._redis.exceptions.NoScriptError:
                return client.execute_command("EVAL", script, len(keys), *keys, *arguments)

        return self.use(run)

    def use(self, work: Callable[[Any], T]) -> T:
        """Call ``work`` with the client. If the connection breaks, call it again with a new one: all scripts of this
        package can safely be repeated. Raises StoreError."""
        broken = (self._redis.ConnectionError, self._redis.TimeoutError)
        try:
            return self._client.use(work, lambda error: isinstance(error, broken))
        except self._redis.RedisError as error:
            self.close()
            raise self._to_store_error(error) from None

    def close(self) -> None:
        self._client.close()

    def _connect(self) -> Any:
        """Connect to the server, or to all nodes of its cluster."""
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        options = {"protocol": 2, "socket_timeout": TIMEOUT_S, "socket_connect_timeout": 10.0, **self._options}
        single = {key: value for key, value in options.items() if key != "ssl"}
        pool = self._redis.ConnectionPool(
            self._redis.SSLConnection if "ssl" in options else self._redis.Connection,
            **single,
            retry=Retry(NoBackoff(), 0),
            command_packer=_JoiningPacker(),
        )
        client = self._redis.Redis(connection_pool=pool, single_connection_client=True)
        client.auto_close_connection_pool = True  # closing the client closes the pool
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
        client.set(self.key("version"), VERSION, nx=True)
        version = client.get(self.key("version"))
        if version != b"%d" % VERSION:
            raise log_errors.newer_format(self.name, repr(version), VERSION, "database or prefix")
        if isinstance(client, self._redis.RedisCluster):
            node = client.get_node_from_key(self.key("version"))  # type: ignore[no-untyped-call]  # of the library
            memory = client.info("memory", target_nodes=node)
        else:
            memory = client.info("memory")
        if memory.get("maxmemory") and memory.get("maxmemory_policy", "noeviction") != "noeviction":
            raise StoreError(
                f"{self.name} would delete sessions when its memory is full (maxmemory-policy).",
                hint="Set maxmemory-policy to noeviction, or use a server that is not a cache.",
            )

    def _to_store_error(self, error: Exception) -> StoreError:
        cause = log_errors.first_line(error)
        if cause.split(" ")[0] == "LOST" or cause.endswith(" LOST"):
            return StoreCorrupt(
                f"{self.name} lost acknowledged entries: it was emptied, or restarted from an older copy.",
                hint="Restart the servers of agent-kernel, and let Redis keep every write: appendonly yes.",
            )
        return log_errors.unusable(self.name, cause)


class _JoiningPacker:
    """Packs a command into one bytes object, so that one system call sends it. The library's own packer sends every
    long argument separately, which takes twice as much processor time here and wakes the server each time."""

    def pack(self, name: str, *given: Any) -> list[bytes]:
        words = [
            *name.encode().split(),
            *(argument if isinstance(argument, bytes) else str(argument).encode() for argument in given),
        ]
        return [b"*%d\r\n%b" % (len(words), b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words]))]


@functools.cache
def _read_scripts(file: str) -> dict[str, tuple[str, str]]:
    """Return the scripts of a Lua file of this folder by name, each with its digest."""
    text = files("agent_kernel.sessions.log").joinpath(file).read_text("utf-8")
    _, *parts = re.split(r"^-- script (\w+)\n", text, flags=re.MULTILINE)
    scripts = dict(zip(parts[::2], parts[1::2], strict=True))
    digests = {name: hashlib.sha1(script.encode(), usedforsecurity=False) for name, script in scripts.items()}
    return {name: (script, digests[name].hexdigest()) for name, script in scripts.items()}


def _read_url(url: str, redis: Any) -> tuple[dict[str, Any], str]:
    """Return (options of the connection, prefix of the keys). Raises ValueError if the URL has another form or an
    option that is not allowed."""
    url, prefix = take_option(url, "prefix", r"[\w.:-]{1,100}")
    parts = urlsplit(url)
    if parts.fragment or not re.fullmatch(r"/?\d{0,9}", parts.path):
        raise ValueError("number or fragment")
    if not all(_OPTION.fullmatch(name) for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        raise ValueError("option")
    options: dict[str, Any] = dict(redis.connection.parse_url(url))
    if options.pop("connection_class", None) is not None:
        options["ssl"] = True
    return options, prefix or PREFIX


def member(namespace: str, name: str) -> str:
    """Join two names into one text. Different pairs give different texts."""
    return f"{len(namespace)}:{namespace}:{name}"

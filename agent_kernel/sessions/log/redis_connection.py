"""A connection to Redis or Valkey, and the names of keys. The connection is opened at the first use, and opened again
after it broke."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from agent_kernel.core.errors import InvalidRequest, StoreCorrupt, StoreError
from agent_kernel.sessions.log import log_errors
from agent_kernel.sessions.log.client_holder import ClientHolder
from agent_kernel.sessions.log.url_options import take_option

T = TypeVar("T")
VERSION = 1
TIMEOUT_S = 20.0
PREFIX = "agent-kernel"
_OPTION = re.compile(r"ssl_(ca_certs|ca_path|certfile|keyfile|keyfile_password|cert_reqs|check_hostname)")
"""Options of redis-py that a URL may set. Others are refused, since some change how replies are decoded."""


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
    """Return (options of the connection, prefix of the keys). Raises ValueError."""
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

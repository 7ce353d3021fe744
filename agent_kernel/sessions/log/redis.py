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
_DROPPED_AT_ONCE = 500


class RedisLog:
    """A LogStore in the Redis, Valkey or cluster that ``url`` names (redis://... or rediss://... with TLS). ``prefix``
    in the URL's query separates several logs in one database. It connects at the first use, and again after the
    connection broke. Raises InvalidRequest for a URL that cannot be parsed, or if redis-py is not installed."""

    compares = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = RedisConnection(url, "redis_log.lua")
        self.name = self._connection.name

    def __repr__(self) -> str:
        return f"RedisLog({self.name!r})"

    def read(self, after: Mapping[str, int], among: Collection[str] | None = None) -> Tail:
        selected = after if among is None else {name: after.get(name, 0) for name in sorted(among)}
        seen = [word for pair in selected.items() for word in pair]
        keys = [self._connection.key("namespaces"), self._connection.key("positions")]
        which = "all" if among is None else "some"
        answer = self._connection.run("read", keys, [self._connection.key("log:"), PAGE, which, *seen])
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

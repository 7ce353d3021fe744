"""Stores responses in the database that servers share, so that each server can return the responses of all.

Each response, with its stream, is one value. An index for each namespace lists its responses. The index is divided into
a fixed number of parts, because a whole part is written with every response.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.log.message_bus import SharedValue
from jupyter_ext.api.responses.response_object import ResponseFacts
from jupyter_ext.api.responses.store import (
    KEEP_S,
    MOST,
    MOST_BYTES,
    ResponseOwner,
    StoredResponse,
    encode_json,
    pack_frames,
    unpack_frames,
)
from jupyter_ext.turns.server_link import ServerLink

PARTS = 16
"""Number of parts of the index of a namespace. A response is in the part that the hash of its id names."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """The entry of one response in the index. ``created`` is in seconds since the epoch."""

    id: str
    session: str
    created: float
    bytes: int


@dataclass(frozen=True, slots=True)
class ResponseRecord:
    """The stored form of a response: a line of JSON, followed by the compressed frames of its stream."""

    facts: Mapping[str, Any]
    packed: bytes = b""

    @classmethod
    def decode(cls, value: bytes) -> ResponseRecord:
        head, _, packed = value.partition(b"\n")
        return cls(json.loads(head), packed)

    def encode(self) -> bytes:
        return encode_json(dict(self.facts)).encode() + b"\n" + self.packed

    def response(self, owner: ResponseOwner) -> StoredResponse | None:
        """Return the response if it belongs to the owner, otherwise None."""
        if self.facts["subject"] != owner.subject:
            return None
        facts = ResponseFacts.from_json(self.facts["facts"])
        return StoredResponse(owner, self.facts["turn"], facts, self.facts["input"], self.facts["body"])


class SharedResponses:
    """The responses of the servers that share a store. Each part of a namespace's index may have its share of ``most``
    responses and ``most_bytes`` bytes; the oldest responses beyond either limit are deleted.

    A response is added to the index before it is stored, and stays there until it is deleted, so that a killed server
    leaves no response that cannot be found. The index may therefore name responses that do not exist.
    """

    def __init__(self, link: ServerLink, *, most: int = MOST, most_bytes: int = MOST_BYTES, parts: int = PARTS) -> None:
        self._link = link
        self._parts = parts
        self._most = math.ceil(most / parts)
        self._most_bytes = math.ceil(most_bytes / parts)
        self._namespaces: set[str] = set()

    async def add(self, response: StoredResponse) -> None:
        namespace = response.owner.namespace
        self._namespaces.add(namespace)
        facts = {
            "subject": response.owner.subject,
            "turn": response.turn,
            "facts": response.facts.to_json(),
            "input": list(response.input),
            "body": response.body,
        }
        record = await asyncio.to_thread(ResponseRecord(facts).encode)
        entry = IndexEntry(response.id, response.facts.session, response.facts.created, len(record))
        evicted: list[IndexEntry] = []

        def insert(entries: list[IndexEntry]) -> list[IndexEntry]:
            known = [*(one for one in entries if one.id != entry.id), entry]
            kept = self._evict(known)
            evicted[:] = [one for one in known if one not in kept]
            return kept

        await self._change_index(namespace, self._part(response.id), insert)
        for one in evicted:
            await self._remove(namespace, one.id)
        if entry not in evicted:
            value = SharedValue(secrets.token_hex(8), record)
            # Nothing is written if the response is stored already.
            await self._link.swap_value(namespace, _name(response.id), "", value, KEEP_S)

    async def finish(
        self, response: StoredResponse, body: Mapping[str, Any], frames: Sequence[bytes], *, again: bool = False
    ) -> None:
        namespace, size = response.owner.namespace, 0
        packed = await asyncio.to_thread(pack_frames, frames)

        def end(known: bytes | None) -> bytes | None:
            nonlocal size
            record = None if known is None else ResponseRecord.decode(known)
            if record is None or (again and record.facts["body"] is not None):
                return known
            ended = ResponseRecord({**record.facts, "body": body}, packed).encode()
            size = len(ended)
            return ended

        await self._link.change_value(namespace, _name(response.id), end, KEEP_S)
        if size:
            await self._change_index(
                namespace,
                self._part(response.id),
                lambda entries: [
                    IndexEntry(one.id, one.session, one.created, size) if one.id == response.id else one
                    for one in entries
                ],
            )

    async def get(self, owner: ResponseOwner, id: str) -> StoredResponse | None:
        record = await self._read(owner.namespace, id)
        return None if record is None else record.response(owner)

    async def frames(self, owner: ResponseOwner, id: str) -> list[bytes] | None:
        record = await self._read(owner.namespace, id)
        return None if record is None or record.response(owner) is None else unpack_frames(record.packed)

    async def delete(self, owner: ResponseOwner, id: str) -> bool:
        if await self.get(owner, id) is None:
            return False
        await self._remove(owner.namespace, id)
        await self._change_index(owner.namespace, self._part(id), _without({id}))
        return True

    async def has_response(self, key: SessionKey) -> bool:
        for part in range(self._parts):
            for entry in await self._index(key.namespace, part):
                if entry.session == key.id and await self._read(key.namespace, entry.id) is not None:
                    return True
        return False

    async def sessions(self) -> list[SessionKey]:
        """Return the sessions of stored responses, in the namespaces in which this server has stored some. In other
        namespaces, the response of a session that no longer exists stays until it expires; no request returns it."""
        found: set[SessionKey] = set()
        for namespace in [*self._namespaces]:
            for part in range(self._parts):
                found |= {SessionKey(namespace, entry.session) for entry in await self._index(namespace, part)}
        return [*found]

    async def forget(self, key: SessionKey) -> None:
        for part in range(self._parts):
            entries = await self._index(key.namespace, part)
            gone = {entry.id for entry in entries if entry.session == key.id}
            for id in gone:
                await self._remove(key.namespace, id)
            if gone:
                await self._change_index(key.namespace, part, _without(gone))

    async def aclose(self) -> None:
        """Do nothing: ``services.py`` closes the link."""

    def _evict(self, entries: list[IndexEntry]) -> list[IndexEntry]:
        """Delete the oldest entries beyond the limits. Return the remaining ones, the newest last."""
        kept: list[IndexEntry] = []
        size, oldest = 0, time.time() - KEEP_S
        for entry in sorted(entries, key=lambda entry: entry.created, reverse=True):
            size += entry.bytes
            if len(kept) == self._most or size > self._most_bytes or entry.created < oldest:
                break
            kept.append(entry)
        return kept[::-1]

    def _part(self, id: str) -> int:
        return hashlib.sha256(id.encode()).digest()[0] % self._parts

    async def _read(self, namespace: str, id: str) -> ResponseRecord | None:
        value = await self._link.get_value(namespace, _name(id))
        return None if value is None else ResponseRecord.decode(value.body)

    async def _remove(self, namespace: str, id: str) -> None:
        await self._link.change_value(namespace, _name(id), lambda known: None, KEEP_S)

    async def _index(self, namespace: str, part: int) -> list[IndexEntry]:
        value = await self._link.get_value(namespace, _index_name(part))
        return [] if value is None else _decode_index(value.body)

    async def _change_index(
        self, namespace: str, part: int, change: Callable[[list[IndexEntry]], list[IndexEntry]]
    ) -> None:
        def rewrite(known: bytes | None) -> bytes | None:
            entries = change([] if known is None else _decode_index(known))
            rows = [[entry.id, entry.session, entry.created, entry.bytes] for entry in entries]
            return encode_json(rows).encode() if rows else None

        await self._link.change_value(namespace, _index_name(part), rewrite, KEEP_S)


def _without(ids: set[str]) -> Callable[[list[IndexEntry]], list[IndexEntry]]:
    return lambda entries: [entry for entry in entries if entry.id not in ids]


def _name(id: str) -> str:
    return f"response/{id}"


def _index_name(part: int) -> str:
    return f"responses/{part}"


def _decode_index(body: bytes) -> list[IndexEntry]:
    return [IndexEntry(id, session, created, size) for id, session, created, size in json.loads(body)]

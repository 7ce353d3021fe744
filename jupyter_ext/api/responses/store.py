"""Stores responses that can be fetched again, in a small file beside the sessions, in memory, or in the database that
servers share (``shared_responses.py``). The stored data of a response are its input and its resource; the conversation
is in the session."""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.store.schema_migration import migration_scripts
from agent_kernel.sessions.tables.rows import count_changes
from jupyter_ext.api.responses.response_object import ResponseFacts, is_response_id

KEEP_S = 30 * 24 * 3600.0
"""Seconds for which a response is stored, the same time as in OpenAI's API."""
MOST = 5_000
MOST_BYTES = 512 << 20
"""Limits for the stored responses of one namespace: their number (MOST) and their bytes (MOST_BYTES). The oldest
responses beyond either limit are deleted."""
FRAMES_BYTES = 4 << 20
"""The maximum bytes of one stored stream, compressed; of a longer stream, only the resource is stored."""
COLUMNS = "id, namespace, subject, session, turn, facts, input, body"


@dataclass(frozen=True, slots=True)
class ResponseOwner:
    """The owner of a response. Nobody else can fetch, continue or find it."""

    namespace: str
    subject: str


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response as it is stored.

    ``input`` are the input items, with ids. ``body`` is the resource once the response has ended.
    """

    owner: ResponseOwner
    turn: str
    facts: ResponseFacts
    input: Sequence[Mapping[str, Any]]
    body: Mapping[str, Any] | None = None

    @property
    def id(self) -> str:
        return self.facts.id

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.owner.namespace, self.facts.session)

    def items(self, ids: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Return the input and output items with these ids; ids without an item are omitted."""
        output = self.body["output"] if self.body else ()
        known = {item.get("id"): item for item in (*output, *self.input)}
        return {id: known[id] for id in ids if id in known}


class ResponseRows(Protocol):
    """The interface of a store for responses. All methods raise StoreError; ``add`` and ``finish`` also raise
    StoreFull."""

    async def add(self, response: StoredResponse) -> None:
        """Store a response. The oldest ones are deleted if there are too many."""

    async def finish(
        self, response: StoredResponse, body: Mapping[str, Any], frames: Sequence[bytes], *, again: bool = False
    ) -> None:
        """Store the end of a response: its resource ``body``, and the frames of its stream. Nothing is stored for a
        response that was deleted in the meantime. ``again``: the response was rebuilt from its turn; if its end is
        already stored, nothing changes."""

    async def get(self, owner: ResponseOwner, id: str) -> StoredResponse | None: ...

    async def frames(self, owner: ResponseOwner, id: str) -> list[bytes] | None:
        """Return the events of the stream; empty if there were too many to store, and None if there is no response."""

    async def delete(self, owner: ResponseOwner, id: str) -> bool: ...

    async def has_response(self, key: SessionKey) -> bool:
        """Return whether a response of the session is stored."""

    async def sessions(self) -> list[SessionKey]:
        """Return the sessions of stored responses, so that the caller can check which of them still exist."""

    async def forget(self, key: SessionKey) -> None:
        """Delete all responses of a session that no longer exists."""

    async def aclose(self) -> None: ...


class ResponseStore:
    """The stored responses of one server, or of those that share a store.

    They are stored in ``rows``; None: in memory. Those of private sessions always are in memory. Raises StoreError,
    StoreFull.
    """

    def __init__(self, rows: ResponseRows | None = None) -> None:
        self._memory: ResponseRows = DatabaseResponses(None)
        self._kept = rows or self._memory

    async def add(self, response: StoredResponse) -> None:
        await self._rows_for(response).add(response)

    async def finish(
        self, response: StoredResponse, body: Mapping[str, Any], frames: Sequence[bytes], *, again: bool = False
    ) -> None:
        await self._rows_for(response).finish(response, body, frames, again=again)

    async def get(self, owner: ResponseOwner, id: str) -> StoredResponse | None:
        for rows in self._places_of(id):
            if (found := await rows.get(owner, id)) is not None:
                return found
        return None

    async def frames(self, owner: ResponseOwner, id: str) -> list[bytes]:
        """Return the events of the stream; empty if there were too many to store."""
        for rows in self._places_of(id):
            if (found := await rows.frames(owner, id)) is not None:
                return found
        return []

    async def delete(self, owner: ResponseOwner, id: str) -> bool:
        return any([await rows.delete(owner, id) for rows in self._places_of(id)])

    async def has_response(self, key: SessionKey) -> bool:
        return any([await rows.has_response(key) for rows in self._places])

    async def sessions(self) -> list[SessionKey]:
        return [key for rows in self._places for key in await rows.sessions()]

    async def forget(self, key: SessionKey) -> None:
        for rows in self._places:
            await rows.forget(key)

    async def aclose(self) -> None:
        for rows in self._places:
            await rows.aclose()

    @property
    def _places(self) -> list[ResponseRows]:
        """The stores that may hold responses of this server. The store in memory comes first, because a lookup in it is
        fast."""
        return [self._memory] if self._kept is self._memory else [self._memory, self._kept]

    def _places_of(self, id: str) -> list[ResponseRows]:
        """Return the stores that may hold the response ``id``. The list is empty if ``id`` does not have the form of a
        response id: a client may send any text, and a database could refuse it."""
        return self._places if is_response_id(id) else []

    def _rows_for(self, response: StoredResponse) -> ResponseRows:
        return self._memory if response.facts.private else self._kept


class DatabaseResponses:
    """The responses of one server, or of servers with the same data directory, in the file ``path``; None: in
    memory."""

    def __init__(self, path: Path | None, *, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        name = str(path or "The store of responses in memory")
        self._database = Database(path, migration_scripts("jupyter_ext.api.responses"), prepare=_prepare, name=name)
        self._most = most
        self._most_bytes = most_bytes

    async def add(self, response: StoredResponse) -> None:
        await self._database.write(partial(_add, response=response, most=self._most, most_bytes=self._most_bytes))

    async def finish(
        self, response: StoredResponse, body: Mapping[str, Any], frames: Sequence[bytes], *, again: bool = False
    ) -> None:
        await self._database.write(partial(_finish, id=response.id, body=body, frames=frames, again=again))

    async def get(self, owner: ResponseOwner, id: str) -> StoredResponse | None:
        return await self._database.read(partial(_get, owner=owner, id=id))

    async def frames(self, owner: ResponseOwner, id: str) -> list[bytes] | None:
        return await self._database.read(partial(_frames, owner=owner, id=id))

    async def delete(self, owner: ResponseOwner, id: str) -> bool:
        return await self._database.write(partial(_delete, owner=owner, id=id), frees=True)

    async def has_response(self, key: SessionKey) -> bool:
        return await self._database.read(partial(_has_response, key=key))

    async def sessions(self) -> list[SessionKey]:
        rows = await self._database.read(_sessions)
        return [SessionKey(namespace, session) for namespace, session in rows]

    async def forget(self, key: SessionKey) -> None:
        await self._database.write(partial(_forget, key=key), frees=True)

    async def aclose(self) -> None:
        await self._database.aclose()


def _prepare(connection: sqlite3.Connection) -> None:
    """Configure the database to overwrite deleted data, so that it cannot be read from the file."""
    connection.execute("PRAGMA secure_delete = ON")


def _add(connection: sqlite3.Connection, response: StoredResponse, most: int, most_bytes: int) -> None:
    facts, items = encode_json(response.facts.to_json()), encode_json(list(response.input))
    owner, key = response.owner, response.key
    connection.execute(
        f"INSERT OR IGNORE INTO responses ({COLUMNS}, created, bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(response.id, owner.namespace, owner.subject, key.id, response.turn, facts, items),
            *(encode_json(response.body) if response.body else None, response.facts.created, len(facts) + len(items)),
        ),
    )
    _evict(connection, owner.namespace, most, most_bytes)


def _evict(connection: sqlite3.Connection, namespace: str, most: int, most_bytes: int) -> None:
    connection.execute("DELETE FROM responses WHERE namespace = ? AND created < ?", (namespace, time.time() - KEEP_S))
    total = "SELECT count(*), coalesce(sum(bytes), 0) FROM responses WHERE namespace = ?"
    count, size = connection.execute(total, (namespace,)).fetchone()
    if count <= most and size <= most_bytes:
        return
    oldest = "SELECT rowid, bytes FROM responses WHERE namespace = ? ORDER BY created, rowid"
    gone: list[tuple[int]] = []
    for row, weight in connection.execute(oldest, (namespace,)):
        if count - len(gone) <= most and size <= most_bytes:
            break
        gone.append((row,))
        size -= weight
    connection.executemany("DELETE FROM responses WHERE rowid = ?", gone)


def _finish(
    connection: sqlite3.Connection, id: str, body: Mapping[str, Any], frames: Sequence[bytes], again: bool
) -> None:
    text, frames_kept = encode_json(body), pack_frames(frames) or None
    connection.execute(
        "UPDATE responses SET body = ?, frames = ?, bytes = length(facts) + length(input) + ?"
        " WHERE id = ? AND NOT (? AND body IS NOT NULL)",
        (text, frames_kept, len(text) + len(frames_kept or b""), id, again),
    )


def _get(connection: sqlite3.Connection, owner: ResponseOwner, id: str) -> StoredResponse | None:
    row = _row(connection, COLUMNS, owner, id)
    if row is None:
        return None
    facts, items, body = row[5:]
    ended = None if body is None else json.loads(body)
    return StoredResponse(owner, row[4], ResponseFacts.from_json(json.loads(facts)), json.loads(items), ended)


def _frames(connection: sqlite3.Connection, owner: ResponseOwner, id: str) -> list[bytes] | None:
    row = _row(connection, "frames", owner, id)
    if row is None:
        return None
    return unpack_frames(row[0] or b"")


def _row(connection: sqlite3.Connection, columns: str, owner: ResponseOwner, id: str) -> Any:
    query = f"SELECT {columns} FROM responses WHERE id = ? AND namespace = ? AND subject = ?"
    return connection.execute(query, (id, owner.namespace, owner.subject)).fetchone()


def _delete(connection: sqlite3.Connection, owner: ResponseOwner, id: str) -> bool:
    gone = "DELETE FROM responses WHERE id = ? AND namespace = ? AND subject = ?"
    connection.execute(gone, (id, owner.namespace, owner.subject))
    return count_changes(connection) > 0


def _has_response(connection: sqlite3.Connection, key: SessionKey) -> bool:
    query = "SELECT 1 FROM responses WHERE namespace = ? AND session = ? LIMIT 1"
    return connection.execute(query, (key.namespace, key.id)).fetchone() is not None


def _sessions(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return list(connection.execute("SELECT DISTINCT namespace, session FROM responses"))


def _forget(connection: sqlite3.Connection, key: SessionKey) -> None:
    connection.execute("DELETE FROM responses WHERE namespace = ? AND session = ?", (key.namespace, key.id))


def pack_frames(frames: Sequence[bytes]) -> bytes:
    """Compress the frames. Return an empty result if they are too large to be stored."""
    packed = zlib.compress(b"".join(frames), 1) if frames else b""
    return packed if len(packed) <= FRAMES_BYTES else b""


def unpack_frames(packed: bytes) -> list[bytes]:
    return [frame + b"\n\n" for frame in zlib.decompress(packed).split(b"\n\n") if frame] if packed else []


def encode_json(value: Any) -> str:
    """Return the value as JSON. Characters that UTF-8 cannot encode (unpaired surrogates) are escaped."""
    return json.dumps(value, ensure_ascii=True)

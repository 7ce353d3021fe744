"""Stores responses that can be fetched again, in a small file beside the sessions or in memory. Stored are the input
and the resource of each response; the conversation is in the session."""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.tables.rows import count_changes
from jupyter_ext.api.responses.response_object import ResponseFacts

T = TypeVar("T")
KEEP_S = 30 * 24 * 3600.0
"""Seconds for which a response is stored, the same time as in OpenAI's API."""
MOST = 5_000
MOST_BYTES = 512 << 20
"""Limits for the stored responses of one namespace: their number (MOST) and their bytes (MOST_BYTES). The oldest
responses beyond either limit are deleted."""
FRAMES_BYTES = 4 << 20
"""The maximum bytes of one stored stream, compressed; of a longer stream, only the resource is stored."""
STEPS = (
    """
    CREATE TABLE responses (
        id TEXT PRIMARY KEY,
        namespace TEXT NOT NULL,
        subject TEXT NOT NULL,
        session TEXT NOT NULL,
        turn TEXT NOT NULL,
        created REAL NOT NULL,
        bytes INTEGER NOT NULL,
        facts TEXT NOT NULL,
        input TEXT NOT NULL,
        body TEXT,
        frames BLOB
    );
    CREATE INDEX responses_by_age ON responses (namespace, created, bytes);
    CREATE INDEX responses_by_session ON responses (namespace, session);
    """,
)
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


class ResponseStore:
    """Stores responses in a file, or in memory.

    ``path`` None: all responses are stored in memory; those of private sessions always are. Raises StoreError,
    StoreFull.
    """

    def __init__(self, path: Path | None, *, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._memory = _database(None)
        self._kept = _database(path) if path is not None else self._memory
        self._most = most
        self._most_bytes = most_bytes

    async def add(self, response: StoredResponse) -> None:
        """Store a response. The oldest ones are deleted if there are too many."""
        await self._of(response).write(partial(_add, response=response, most=self._most, most_bytes=self._most_bytes))

    async def finish(
        self, response: StoredResponse, body: Mapping[str, Any], frames: Sequence[bytes], *, again: bool = False
    ) -> None:
        """Store the end of a response: its resource ``body``, and the frames of its stream. Nothing is stored for a
        response that was deleted in the meantime. ``again``: the response was rebuilt from its turn; if its end is
        already stored, nothing changes."""
        await self._of(response).write(partial(_finish, id=response.id, body=body, frames=frames, again=again))

    async def get(self, owner: ResponseOwner, id: str) -> StoredResponse | None:
        return await self._first(partial(_get, owner=owner, id=id))

    async def frames(self, owner: ResponseOwner, id: str) -> list[bytes]:
        """Return the events of the stream; empty if there were too many to store."""
        return await self._first(partial(_frames, owner=owner, id=id)) or []

    async def delete(self, owner: ResponseOwner, id: str) -> bool:
        work = partial(_delete, owner=owner, id=id)
        return any([await database.write(work, frees=True) for database in self._databases])

    async def any_of(self, key: SessionKey) -> bool:
        """Return whether any response of the session is stored."""
        return any([await database.read(partial(_any_of, key=key)) for database in self._databases])

    async def sessions(self) -> list[SessionKey]:
        """Return the sessions of all stored responses."""
        rows = [key for database in self._databases for key in await database.read(_sessions)]
        return [SessionKey(namespace, session) for namespace, session in rows]

    async def forget(self, key: SessionKey) -> None:
        """Delete all responses of a session that no longer exists."""
        for database in self._databases:
            await database.write(partial(_forget, key=key), frees=True)

    async def aclose(self) -> None:
        for database in self._databases:
            await database.aclose()

    @property
    def _databases(self) -> list[Database]:
        return [self._kept] if self._kept is self._memory else [self._kept, self._memory]

    def _of(self, response: StoredResponse) -> Database:
        return self._memory if response.facts.private else self._kept

    async def _first(self, work: Callable[[sqlite3.Connection], T | None]) -> T | None:
        for database in self._databases:
            if (result := await database.read(work)) is not None:
                return result
        return None


def _database(path: Path | None) -> Database:
    return Database(path, STEPS, prepare=_prepare, name=str(path or "The store of responses in memory"))


def _prepare(connection: sqlite3.Connection) -> None:
    """Overwrite deleted data, so that it cannot be read in the file."""
    connection.execute("PRAGMA secure_delete = ON")


def _add(connection: sqlite3.Connection, response: StoredResponse, most: int, most_bytes: int) -> None:
    facts, items = _json(response.facts.to_json()), _json(list(response.input))
    owner, key = response.owner, response.key
    connection.execute(
        f"INSERT OR IGNORE INTO responses ({COLUMNS}, created, bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(response.id, owner.namespace, owner.subject, key.id, response.turn, facts, items),
            *(_json(response.body) if response.body else None, response.facts.created, len(facts) + len(items)),
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
    text = _json(body)
    packed = zlib.compress(b"".join(frames), 1) if frames else b""
    frames_kept = packed if 0 < len(packed) <= FRAMES_BYTES else None
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
    return [frame + b"\n\n" for frame in zlib.decompress(row[0]).split(b"\n\n") if frame] if row[0] else []


def _row(connection: sqlite3.Connection, columns: str, owner: ResponseOwner, id: str) -> Any:
    query = f"SELECT {columns} FROM responses WHERE id = ? AND namespace = ? AND subject = ?"
    return connection.execute(query, (id, owner.namespace, owner.subject)).fetchone()


def _delete(connection: sqlite3.Connection, owner: ResponseOwner, id: str) -> bool:
    gone = "DELETE FROM responses WHERE id = ? AND namespace = ? AND subject = ?"
    connection.execute(gone, (id, owner.namespace, owner.subject))
    return count_changes(connection) > 0


def _any_of(connection: sqlite3.Connection, key: SessionKey) -> bool:
    query = "SELECT 1 FROM responses WHERE namespace = ? AND session = ? LIMIT 1"
    return connection.execute(query, (key.namespace, key.id)).fetchone() is not None


def _sessions(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return list(connection.execute("SELECT DISTINCT namespace, session FROM responses"))


def _forget(connection: sqlite3.Connection, key: SessionKey) -> None:
    connection.execute("DELETE FROM responses WHERE namespace = ? AND session = ?", (key.namespace, key.id))


def _json(value: Any) -> str:
    """Return the value as JSON. Characters that UTF-8 cannot encode (unpaired surrogates) are escaped."""
    return json.dumps(value, ensure_ascii=True)

"""Stores which turn answered the request of an idempotency key. The answer itself is only in the session."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_kernel.sessions.log.message_bus import SharedValue
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.store.private_store import is_private
from jupyter_ext.turns.server_link import ServerLink

KEPT_S = 24 * 3600.0
MOST = 10_000
"""Maximum number of rows for each user; the oldest are deleted."""
TIDY_S = 600.0
PRIVATE = "private"
"""Stored in place of the id of a private session, which must leave no trace on disk."""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The idempotency key of one request.

    ``user`` is the namespace and ``subject`` the credential; ``key`` and ``request`` are SHA-256 hashes.
    """

    user: str
    subject: str
    key: str
    request: str

    @property
    def identity(self) -> tuple[str, str, str]:
        """The primary key of the row. A second request with the same identity must be the same request, otherwise it is
        refused."""
        return self.user, self.subject, self.key


@dataclass(frozen=True, slots=True)
class IdempotencyRow:
    """The database row of one idempotency key: the request's hash and the turn that answers the request.

    An empty ``session`` means that the turn has not started yet. ``facts`` are the other fields of the answer.
    """

    request: str
    turn: str
    session: str
    began: float
    facts: Mapping[str, Any] = field(default_factory=dict)


class IdempotencyRows(Protocol):
    """The interface of a store for idempotency keys. All methods raise StoreError."""

    async def claim(
        self, key: IdempotencyKey, turn: str, instead: IdempotencyRow | None = None
    ) -> IdempotencyRow | None:
        """Record that ``turn`` is about to answer the request, replacing the row ``instead``, and return None.

        If another current row exists for the key, return that row and record nothing.
        """

    async def find(self, key: IdempotencyKey) -> IdempotencyRow | None:
        """Return the row of the key, unless it is older than KEPT_S."""

    async def mark_begun(self, key: IdempotencyKey, turn: str, session: str, facts: Mapping[str, Any]) -> None:
        """Record that the claimed turn has started. ``session`` is its session, and ``facts`` are the other fields of
        the answer."""

    async def forget(self, key: IdempotencyKey, turn: str) -> None:
        """Delete the row that ``claim`` stored for a turn that did not start."""


class DatabaseRows:
    """Stores the idempotency keys of one server, or of servers with the same data directory, in a database table."""

    def __init__(self, records: Database, clock: Callable[[], float] = time.time) -> None:
        self._records = records
        self._clock = clock
        self._tidied = float("-inf")

    async def claim(
        self, key: IdempotencyKey, turn: str, instead: IdempotencyRow | None = None
    ) -> IdempotencyRow | None:
        def write(connection: sqlite3.Connection) -> IdempotencyRow | None:
            self._delete_old_rows(connection, key.user)
            row = _select_row(connection, key)
            if row is not None and row.turn != (instead.turn if instead else "") and self._is_current(row):
                return row
            values = (*key.identity, key.request, turn, "", "{}", self._clock())
            connection.execute("INSERT OR REPLACE INTO answered VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
            return None

        return await self._records.write(write)

    async def find(self, key: IdempotencyKey) -> IdempotencyRow | None:
        row = await self._records.read(lambda connection: _select_row(connection, key))
        return row if row is not None and self._is_current(row) else None

    async def mark_begun(self, key: IdempotencyKey, turn: str, session: str, facts: Mapping[str, Any]) -> None:
        values = (*_describe_session(session, facts), *key.identity, turn)
        question = "UPDATE answered SET session = ?, facts = ? WHERE user = ? AND subject = ? AND key = ? AND turn = ?"
        await self._records.write(lambda connection: connection.execute(question, values))

    async def forget(self, key: IdempotencyKey, turn: str) -> None:
        question = "DELETE FROM answered WHERE user = ? AND subject = ? AND key = ? AND turn = ?"
        await self._records.write(lambda connection: connection.execute(question, (*key.identity, turn)))

    def _is_current(self, row: IdempotencyRow) -> bool:
        return row.began > self._clock() - KEPT_S

    def _delete_old_rows(self, connection: sqlite3.Connection, user: str) -> None:
        if (now := self._clock()) - self._tidied > TIDY_S:
            self._tidied = now
            connection.execute("DELETE FROM answered WHERE began <= ?", (now - KEPT_S,))
        oldest = "SELECT began FROM answered WHERE user = ? ORDER BY began DESC LIMIT 1 OFFSET ?"
        if found := connection.execute(oldest, (user, MOST - 1)).fetchone():
            connection.execute("DELETE FROM answered WHERE user = ? AND began <= ?", (user, found[0]))


class SharedRows:
    """Stores the idempotency keys of the servers that share a session store, in that store. The age of an entry is
    measured by the clock of the database."""

    def __init__(self, link: ServerLink, clock: Callable[[], float] = time.time) -> None:
        self._link = link
        self._clock = clock

    async def claim(
        self, key: IdempotencyKey, turn: str, instead: IdempotencyRow | None = None
    ) -> IdempotencyRow | None:
        value = SharedValue(turn, _encode_row(key.request, "", "{}"))
        # The row may be deleted between the failed attempt to write it and the attempt to read it.
        while not await self._swap(key, instead.turn if instead else "", value):
            if (row := await self.find(key)) is not None:
                return row
            instead = None
        return None

    async def find(self, key: IdempotencyKey) -> IdempotencyRow | None:
        value = await self._link.get_value(key.user, _value_name(key))
        if value is None:
            return None
        request, session, facts = json.loads(value.body)
        return IdempotencyRow(request, value.version, session, self._clock() - value.age_s, json.loads(facts))

    async def mark_begun(self, key: IdempotencyKey, turn: str, session: str, facts: Mapping[str, Any]) -> None:
        row = _encode_row(key.request, *_describe_session(session, facts))
        await self._swap(key, turn, SharedValue(turn, row))

    async def forget(self, key: IdempotencyKey, turn: str) -> None:
        await self._swap(key, turn, None)

    async def _swap(self, key: IdempotencyKey, expect: str, value: SharedValue | None) -> bool:
        return await self._link.swap_value(key.user, _value_name(key), expect, value, KEPT_S)


def _value_name(key: IdempotencyKey) -> str:
    """Return the name of a row among the values of a shared store. It contains no id of a credential."""
    return f"idempotency/{hashlib.sha256(json.dumps(key.identity).encode()).hexdigest()}"


def _encode_row(request: str, session: str, facts: str) -> bytes:
    return json.dumps([request, session, facts]).encode()


def _describe_session(session: str, facts: Mapping[str, Any]) -> tuple[str, str]:
    """Return (session id, other fields of the answer as JSON) as a row may store them: nothing about a private session
    is stored."""
    return (PRIVATE, "{}") if is_private(session) else (session, json.dumps(dict(facts)))


def _select_row(connection: sqlite3.Connection, key: IdempotencyKey) -> IdempotencyRow | None:
    question = "SELECT request, turn, session, began, facts FROM answered WHERE user = ? AND subject = ? AND key = ?"
    row = connection.execute(question, key.identity).fetchone()
    return None if row is None else IdempotencyRow(row[0], row[1], row[2], row[3], json.loads(row[4]))

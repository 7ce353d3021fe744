"""Which turn answered the request of a key: rows that outlive the server. What was said is in the session alone."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.store.private_store import is_private

KEPT_S = 24 * 3600.0
MOST = 10_000
"""Of one user; the oldest go."""
TIDY_S = 600.0
PRIVATE = "private"
"""In place of the id of a session that leaves nothing behind."""


@dataclass(frozen=True, slots=True)
class Key:
    """``user`` is the namespace, ``subject`` whose credential it is, ``key`` and ``request`` are hashes."""

    user: str
    subject: str
    key: str
    request: str

    @property
    def place(self) -> tuple[str, str, str]:
        """Two requests of one place are the same one, or the second is refused."""
        return self.user, self.subject, self.key


@dataclass(frozen=True, slots=True)
class Row:
    """``session`` empty: the turn was about to begin. ``facts`` are what else the answer said."""

    request: str
    turn: str
    session: str
    began: float
    facts: Mapping[str, Any] = field(default_factory=dict)


class AnsweredRows:
    """Of one file. All raise StoreError."""

    def __init__(self, records: Database, clock: Callable[[], float] = time.time) -> None:
        self._records = records
        self._clock = clock
        self._tidied = float("-inf")

    async def claim(self, key: Key, turn: str, instead: Row | None = None) -> Row | None:
        """Notes that ``turn`` is about to answer, in the place of the row ``instead``; the row of another request of
        this place, if there is one: nothing was noted then."""

        def write(connection: sqlite3.Connection) -> Row | None:
            self._tidy(connection, key.user)
            found = _read(connection, key)
            if found is not None and found.turn != (instead.turn if instead else "") and self._holds(found):
                return found
            values = (*key.place, key.request, turn, "", "{}", self._clock())
            connection.execute("INSERT OR REPLACE INTO answered VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
            return None

        return await self._records.write(write)

    async def found(self, key: Key) -> Row | None:
        row = await self._records.read(lambda connection: _read(connection, key))
        return row if row is not None and self._holds(row) else None

    async def began(self, key: Key, turn: str, session: str, facts: Mapping[str, Any]) -> None:
        """The turn that was about to begin did."""
        private = is_private(session)
        values = (PRIVATE if private else session, "{}" if private else json.dumps(dict(facts)), *key.place, turn)
        question = "UPDATE answered SET session = ?, facts = ? WHERE user = ? AND subject = ? AND key = ? AND turn = ?"
        await self._records.write(lambda connection: connection.execute(question, values))

    async def forget(self, key: Key, turn: str) -> None:
        """The turn did not begin."""
        question = "DELETE FROM answered WHERE user = ? AND subject = ? AND key = ? AND turn = ?"
        await self._records.write(lambda connection: connection.execute(question, (*key.place, turn)))

    def _holds(self, row: Row) -> bool:
        return row.began > self._clock() - KEPT_S

    def _tidy(self, connection: sqlite3.Connection, user: str) -> None:
        if (now := self._clock()) - self._tidied > TIDY_S:
            self._tidied = now
            connection.execute("DELETE FROM answered WHERE began <= ?", (now - KEPT_S,))
        oldest = "SELECT began FROM answered WHERE user = ? ORDER BY began DESC LIMIT 1 OFFSET ?"
        if found := connection.execute(oldest, (user, MOST - 1)).fetchone():
            connection.execute("DELETE FROM answered WHERE user = ? AND began <= ?", (user, found[0]))


def _read(connection: sqlite3.Connection, key: Key) -> Row | None:
    question = "SELECT request, turn, session, began, facts FROM answered WHERE user = ? AND subject = ? AND key = ?"
    row = connection.execute(question, key.place).fetchone()
    return None if row is None else Row(row[0], row[1], row[2], row[3], json.loads(row[4]))

"""Beginnings of conversations by hash: found by one look into an index, whatever is stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from agent_kernel.core.session import OpeningMatch, SessionKey
from agent_kernel.sessions.tables import segments, sessions
from agent_kernel.sessions.tables.rows import HERE, pair

_AT_ONCE = 500
"""Hashes in one statement; SQLite takes 32,766 variables."""
_FEW = 20
_NEWEST = 200
"""Where many sessions began alike, the one used last is probably among so many."""
_FREE = "NOT EXISTS (SELECT 1 FROM bindings AS b WHERE b.namespace = o.namespace AND b.session = o.session)"
_ALIKE = f"o.namespace = ? AND o.scope = ? AND o.hash = ? AND {_FREE}"


def remember(db: sqlite3.Connection, key: SessionKey, scope: str, chain: Mapping[int, str]) -> None:
    """Those of ``chain`` whose item is on the current branch."""
    sessions.found(db, key)
    way = segments.of_branch(db, key, None)
    db.executemany(
        "INSERT OR IGNORE INTO openings (namespace, scope, hash, session, seq) VALUES (?, ?, ?, ?, ?)",
        [
            (key.namespace, scope, digest, key.id, seq)
            for seq, digest in chain.items()
            if segments.holding(db, key, seq, way) is not None
        ],
    )


def remembers(db: sqlite3.Connection, key: SessionKey) -> bool:
    return db.execute(f"SELECT 1 FROM openings WHERE {HERE} LIMIT 1", pair(key)).fetchone() is not None


def forget(db: sqlite3.Connection, key: SessionKey) -> None:
    db.execute(f"DELETE FROM openings WHERE {HERE}", pair(key))


def match(db: sqlite3.Connection, namespace: str, scope: str, chain: Sequence[str]) -> OpeningMatch | None:
    for stop in range(len(chain), 0, -_AT_ONCE):
        start = max(0, stop - _AT_ONCE)
        longest_first = list(reversed(chain[start:stop]))
        row = db.execute(
            f"WITH wanted (hash) AS (VALUES {', '.join(['(?)'] * len(longest_first))}) SELECT hash FROM wanted AS w"
            " WHERE EXISTS (SELECT 1 FROM openings AS o"
            f" WHERE o.namespace = ? AND o.scope = ? AND o.hash = w.hash AND {_FREE}) LIMIT 1",
            (*longest_first, namespace, scope),
        ).fetchone()
        if row:
            length = stop - longest_first.index(row[0])
            session, seq = _used_last(db, (namespace, scope, row[0]))
            return OpeningMatch(SessionKey(namespace, session), length, seq)
    return None


def _used_last(db: sqlite3.Connection, beginning: tuple[str, str, str]) -> tuple[str, int]:
    """Of the sessions that began so: by looking up each, if they are few or none of them is among the newest of all."""
    namespace, scope, digest = beginning
    alike = db.execute(f"SELECT 1 FROM openings AS o WHERE {_ALIKE} LIMIT ?", (*beginning, _FEW + 1)).fetchall()
    row = (
        len(alike) > _FEW
        and db.execute(
            "SELECT o.session, max(o.seq) FROM (SELECT namespace, id, updated, rowid AS number FROM sessions"
            " WHERE namespace = ? ORDER BY updated DESC, rowid DESC LIMIT ?) AS s CROSS JOIN openings AS o"
            f" ON o.namespace = s.namespace AND o.scope = ? AND o.hash = ? AND o.session = s.id AND {_FREE}"
            " GROUP BY s.updated, s.number ORDER BY s.updated DESC, s.number DESC LIMIT 1",
            (namespace, _NEWEST, scope, digest),
        ).fetchone()
    )
    row = (
        row
        or db.execute(
            "SELECT o.session, o.seq FROM openings AS o CROSS JOIN sessions AS s"
            f" ON s.namespace = o.namespace AND s.id = o.session WHERE {_ALIKE}"
            " ORDER BY s.updated DESC, s.rowid DESC, o.seq DESC LIMIT 1",
            beginning,
        ).fetchone()
    )
    return str(row[0]), int(row[1])

"""Beginnings of conversations by hash."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from agent_kernel.sessions.model import Match, SessionKey
from agent_kernel.sessions.tables import segments, sessions
from agent_kernel.sessions.tables.rows import pair

_AT_ONCE = 500
"""Hashes in one statement; SQLite takes 32,766 variables."""


def remember(db: sqlite3.Connection, key: SessionKey, scope: str, chain: Mapping[int, str], now: float) -> None:
    sessions.found(db, key)
    rows = []
    way = segments.of_branch(db, key, None)
    for length, (seq, digest) in enumerate(sorted(chain.items()), start=1):
        segment = next(
            (
                piece.segment
                for piece in way
                if seq <= piece.until
                and db.execute(
                    "SELECT 1 FROM items WHERE namespace = ? AND session = ? AND segment = ? AND seq = ?",
                    (*pair(key), piece.segment, seq),
                ).fetchone()
            ),
            None,
        )
        if segment is not None:
            rows.append((key.namespace, scope, digest, key.id, segment, seq, length, now))
    db.executemany(
        "INSERT OR REPLACE INTO openings (namespace, scope, hash, session, segment, seq, length, time)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )


def match(db: sqlite3.Connection, namespace: str, scope: str, chain: Sequence[str]) -> Match | None:
    for start in range(len(chain), 0, -_AT_ONCE):
        part = chain[max(0, start - _AT_ONCE) : start]
        lengths = {digest: max(0, start - _AT_ONCE) + at for at, digest in enumerate(part, start=1)}
        rows = db.execute(
            "SELECT o.hash, o.session, o.seq, s.updated FROM openings AS o JOIN sessions AS s"
            " ON s.namespace = o.namespace AND s.id = o.session"
            f" WHERE o.namespace = ? AND o.scope = ? AND o.hash IN ({', '.join('?' * len(part))})",
            (namespace, scope, *part),
        ).fetchall()
        if rows:
            digest, session, seq, _ = max(rows, key=lambda row: (lengths[row[0]], row[3]))
            return Match(SessionKey(namespace, session), lengths[digest], seq)
    return None

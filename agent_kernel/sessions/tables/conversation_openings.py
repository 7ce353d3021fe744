"""SQL for the table of openings. An opening is a hash of the first messages of a conversation. A look-up needs one
index search per hash, however many are stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from agent_kernel.core.session import OpeningMatch, SessionKey
from agent_kernel.sessions.tables import segments, sessions
from agent_kernel.sessions.tables.rows import HERE, has_row, pair

_AT_ONCE = 500
"""Maximum number of hashes in one statement. SQLite accepts up to 32,766 variables."""
_FEW = 20
"""If at most this many sessions have the same opening, each of them is looked up."""
_NEWEST = 200
"""If many sessions have the same opening, this many of the most recently changed sessions are searched first: the
wanted session, which changed last, is probably among them."""
_UNBOUND = "NOT EXISTS (SELECT 1 FROM bindings AS b WHERE b.namespace = o.namespace AND b.session = o.session)"
"""SQL condition that excludes sessions that are bound to a notebook, since requests name such a session by its id."""
_SAME_OPENING = f"o.namespace = ? AND o.scope = ? AND o.hash = ? AND {_UNBOUND}"


def insert_openings(db: sqlite3.Connection, key: SessionKey, scope: str, chain: Mapping[int, str]) -> None:
    """Store the hashes in ``chain`` (sequence number -> hash of the conversation up to that item). Items that are not
    on the current branch are ignored."""
    sessions.require_session(db, key)
    path = segments.branch_path(db, key, None)
    db.executemany(
        "INSERT OR IGNORE INTO openings (namespace, scope, hash, session, seq) VALUES (?, ?, ?, ?, ?)",
        [
            (key.namespace, scope, digest, key.id, seq)
            for seq, digest in chain.items()
            if segments.find_segment(db, key, seq, path) is not None
        ],
    )


def has_openings(db: sqlite3.Connection, key: SessionKey) -> bool:
    return has_row(db, f"SELECT 1 FROM openings WHERE {HERE} LIMIT 1", pair(key))


def delete_openings(db: sqlite3.Connection, key: SessionKey) -> None:
    db.execute(f"DELETE FROM openings WHERE {HERE}", pair(key))


def find_match(db: sqlite3.Connection, namespace: str, scope: str, chain: Sequence[str]) -> OpeningMatch | None:
    for stop in range(len(chain), 0, -_AT_ONCE):
        start = max(0, stop - _AT_ONCE)
        # The VALUES list is scanned in order, so LIMIT 1 gives the longest opening that any session has.
        longest_first = list(reversed(chain[start:stop]))
        row = db.execute(
            f"WITH wanted (hash) AS (VALUES {', '.join(['(?)'] * len(longest_first))}) SELECT hash FROM wanted AS w"
            " WHERE EXISTS (SELECT 1 FROM openings AS o"
            f" WHERE o.namespace = ? AND o.scope = ? AND o.hash = w.hash AND {_UNBOUND}) LIMIT 1",
            (*longest_first, namespace, scope),
        ).fetchone()
        if row:
            length = stop - longest_first.index(row[0])
            session, seq = _select_last_used(db, (namespace, scope, row[0]))
            return OpeningMatch(SessionKey(namespace, session), length, seq)
    return None


def _select_last_used(db: sqlite3.Connection, beginning: tuple[str, str, str]) -> tuple[str, int]:
    """Return (session id, sequence number of the opening's last item) of the session that changed last among those with
    this opening. ``beginning`` is (namespace, scope, hash).

    If few sessions have this opening, each is looked up. If many have it, the newest sessions of the namespace are
    searched first, and all of them only if none of the newest matches.
    """
    namespace, scope, digest = beginning
    alike = db.execute(f"SELECT 1 FROM openings AS o WHERE {_SAME_OPENING} LIMIT ?", (*beginning, _FEW + 1)).fetchall()
    row = (
        len(alike) > _FEW
        and db.execute(
            # CROSS JOIN fixes the order of the join: from the few newest sessions to their openings, each one index
            # lookup.
            "SELECT o.session, max(o.seq) FROM (SELECT namespace, id, updated, rowid AS number FROM sessions"
            " WHERE namespace = ? ORDER BY updated DESC, rowid DESC LIMIT ?) AS s CROSS JOIN openings AS o"
            f" ON o.namespace = s.namespace AND o.scope = ? AND o.hash = ? AND o.session = s.id AND {_UNBOUND}"
            " GROUP BY s.updated, s.number ORDER BY s.updated DESC, s.number DESC LIMIT 1",
            (namespace, _NEWEST, scope, digest),
        ).fetchone()
    )
    row = (
        row
        or db.execute(
            # Here the join begins with the openings, since there are few of them.
            "SELECT o.session, o.seq FROM openings AS o CROSS JOIN sessions AS s"
            f" ON s.namespace = o.namespace AND s.id = o.session WHERE {_SAME_OPENING}"
            " ORDER BY s.updated DESC, s.rowid DESC, o.seq DESC LIMIT 1",
            beginning,
        ).fetchone()
    )
    return str(row[0]), int(row[1])

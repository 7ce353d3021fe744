"""SQL for sessions: creates, reads, lists, describes and removes them."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import NoReturn

from agent_kernel.core.errors import Conflict, SessionBusy, SessionNotFound
from agent_kernel.core.session import MAIN, UNLISTED, Session, SessionKey, SessionUpdate
from agent_kernel.sessions import serialization
from agent_kernel.sessions.tables import blobs, search_texts
from agent_kernel.sessions.tables.rows import (
    COUNTED_COLUMNS,
    HERE,
    SESSION_COLUMNS,
    count_changes,
    insert_row,
    pair,
    session_from_row,
    sql_limit,
    update_session,
)

_CONTENT_TABLES = (
    *("items", "turns", "media", "segments", "branches", "summaries", "summary_claims", "openings"),
    *("files", "grants", "questions"),
)
"""Tables whose rows are deleted when a session is cleared."""


def create(db: sqlite3.Connection, key: SessionKey, title: str, now: float) -> Session:
    _insert_session(db, key, title, now)
    return require_session(db, key, counts=True)


def _insert_session(db: sqlite3.Connection, key: SessionKey, title: str, now: float) -> None:
    """Insert the row of a session and its first branch, if the session does not exist."""
    db.execute(
        "INSERT INTO sessions (namespace, id, title, created, updated, accessed, revision) VALUES (?, ?, ?, ?, ?, ?, 1)"
        " ON CONFLICT DO NOTHING",
        (key.namespace, key.id, title, now, now, now),
    )
    if count_changes(db):
        insert_row(db, "branches", key, name=MAIN, segment=0, parent="", created=now)


def select_session(db: sqlite3.Connection, key: SessionKey, *, counts: bool = False) -> Session | None:
    """Return the session, or None if it does not exist. ``last_seq`` and ``turn_count`` are set only with
    ``counts``."""
    columns = COUNTED_COLUMNS if counts else SESSION_COLUMNS
    row = db.execute(f"SELECT {columns} FROM sessions AS s WHERE namespace = ? AND id = ?", pair(key)).fetchone()
    return session_from_row(row) if row else None


def require_session(db: sqlite3.Connection, key: SessionKey, *, counts: bool = False) -> Session:
    """Return the session. Raises SessionNotFound."""
    session = select_session(db, key, counts=counts)
    return raise_not_found(key) if session is None else session


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The data of a session that a new turn needs: the last sequence number, the number of turns, the last segment of
    the current branch, and the id of the open turn, if there is one."""

    head: int
    turns: int
    segment: int
    open: str | None


def read_end(db: sqlite3.Connection, key: SessionKey) -> SessionEnd | None:
    """Return the SessionEnd of a session, in one statement; None if the session does not exist."""
    row = db.execute(
        "SELECT s.head, s.turns, s.segment, t.id FROM sessions AS s LEFT JOIN turns AS t"
        " ON t.namespace = s.namespace AND t.session = s.id AND t.state = 'open'"
        " WHERE s.namespace = ? AND s.id = ?",
        pair(key),
    ).fetchone()
    return SessionEnd(*row) if row else None


def begin_session(db: sqlite3.Connection, key: SessionKey, now: float) -> SessionEnd:
    """Create the session and return its SessionEnd."""
    _insert_session(db, key, "", now)
    return SessionEnd(0, 0, 0, None)


def raise_not_found(key: SessionKey) -> NoReturn:
    raise SessionNotFound(f"There is no session {key.id!r}.", details={"session": key.id})


def raise_if_busy(session: SessionEnd) -> None:
    """Raise SessionBusy if a turn is open."""
    if session.open is not None:
        raise SessionBusy(
            "Another turn of this session is running.",
            hint="Wait for it or stop it.",
            details={"turn": session.open},
        )


def select_sessions(db: sqlite3.Connection, namespace: str, limit: int | None) -> list[Session]:
    rows = db.execute(
        f"SELECT {COUNTED_COLUMNS} FROM sessions AS s WHERE namespace = ? AND substr(id, 1, ?) != ?"
        " ORDER BY updated DESC, rowid DESC LIMIT ?",
        (namespace, len(UNLISTED), UNLISTED, sql_limit(limit)),
    )
    return [session_from_row(row) for row in rows]


_HAS_OPEN_TURN = (
    "EXISTS (SELECT 1 FROM turns AS t WHERE t.state = 'open' AND t.namespace = s.namespace AND t.session = s.id)"
)
"""SQL condition that a session, which the query must call ``s``, has an open turn."""


def select_idle(db: sqlite3.Connection, until: float) -> list[Session]:
    """Return sessions of all namespaces that were not used since ``until`` and have no open turn, longest unused first.

    This reads every row: an index on ``accessed`` would cost every append more than it saves here."""
    rows = db.execute(
        f"SELECT {COUNTED_COLUMNS} FROM sessions AS s WHERE accessed <= ? AND NOT {_HAS_OPEN_TURN}"
        " ORDER BY accessed, rowid",
        (until,),
    )
    return [session_from_row(row) for row in rows]


def select_excess(db: sqlite3.Connection, cap: int, namespace: str | None) -> list[Session]:
    """Return the longest unused sessions that exceed the number ``cap`` in the namespace (None: in each namespace),
    without those that have an open turn."""
    full = db.execute(
        "SELECT namespace, count(*) FROM sessions WHERE ? IN (namespace, '') GROUP BY namespace HAVING count(*) > ?",
        (namespace or "", cap),
    ).fetchall()
    excess: list[Session] = []
    for name, count in full:
        rows = db.execute(
            # The inner query selects the sessions first, so that the counts are computed only for these and not for all
            # sessions that are sorted.
            f"SELECT {COUNTED_COLUMNS} FROM sessions AS s WHERE rowid IN"
            f" (SELECT rowid FROM sessions AS s WHERE namespace = ? AND NOT {_HAS_OPEN_TURN}"
            " ORDER BY accessed, rowid LIMIT ?) ORDER BY accessed, rowid",
            (name, count - cap),
        )
        excess += [session_from_row(row) for row in rows]
    return excess


def describe(db: sqlite3.Connection, key: SessionKey, change: SessionUpdate, now: float) -> Session:
    session = require_session(db, key)
    # A generated title must not replace one that a person has set meanwhile.
    chosen_by_another = change.instead_of is not None and session.title != change.instead_of
    fields = {
        "title": None if chosen_by_another else change.title,
        "tags": json.dumps(change.tags, ensure_ascii=False) if change.tags is not None else None,
        "metadata": serialization.encode_value(change.metadata) if change.metadata is not None else None,
        "context": serialization.encode_value(change.context) if change.context is not None else None,
    }
    for name, value in fields.items():
        if value is not None:
            update_session(db, key, **{name: value})
    mark_changed(db, key, now)
    return require_session(db, key, counts=True)


def touch(db: sqlite3.Connection, key: SessionKey, now: float) -> None:
    update_session(db, key, accessed=now)


def clear(db: sqlite3.Connection, key: SessionKey, now: float) -> None:
    require_session(db, key)
    check_no_open_turn(db, key)
    db.execute(
        "INSERT INTO dropped_branches (namespace, session, name) SELECT namespace, session, name FROM branches"
        f" WHERE {HERE} AND name <> ? ON CONFLICT DO NOTHING",
        (*pair(key), MAIN),
    )
    _remove_items(db, key)
    insert_row(db, "branches", key, name=MAIN, segment=0, parent="", created=now)
    update_session(db, key, head=0, turns=0, segment=0, branch=MAIN)
    mark_changed(db, key, now)


def delete(db: sqlite3.Connection, key: SessionKey, revision: int | None) -> bool:
    session = select_session(db, key)
    if session is None:
        return False
    if revision not in (None, session.revision):
        raise Conflict("The session has changed.", details={"revision": session.revision})
    remove_session(db, key)
    db.execute(f"DELETE FROM bindings WHERE {HERE}", pair(key))
    return True


def remove_session(db: sqlite3.Connection, key: SessionKey) -> None:
    """Delete the session and its contents, but not its bindings to notebooks."""
    check_no_open_turn(db, key)
    _remove_items(db, key)
    for table in ("dropped_branches", "quarantine"):
        db.execute(f"DELETE FROM {table} WHERE {HERE}", pair(key))
    db.execute("DELETE FROM sessions WHERE namespace = ? AND id = ?", pair(key))


def check_no_open_turn(db: sqlite3.Connection, key: SessionKey) -> None:
    row = db.execute(f"SELECT id FROM turns WHERE {HERE} AND state = 'open'", pair(key)).fetchone()
    raise_if_busy(SessionEnd(0, 0, 0, row[0] if row else None))


def mark_changed(db: sqlite3.Connection, key: SessionKey, now: float) -> None:
    """Increase the revision and set the times of the last change and use."""
    db.execute(
        "UPDATE sessions SET revision = revision + 1, updated = ?, accessed = ? WHERE namespace = ? AND id = ?",
        (now, now, *pair(key)),
    )


def _remove_items(db: sqlite3.Connection, key: SessionKey) -> None:
    query = f"SELECT hash FROM media WHERE {HERE} UNION SELECT hash FROM files WHERE {HERE}"
    hashes = [digest for (digest,) in db.execute(query, (*pair(key), *pair(key)))]
    # Search texts are deleted before the items, because their ids are derived from the items.
    search_texts.delete_session_texts(db, key)
    for table in _CONTENT_TABLES:
        db.execute(f"DELETE FROM {table} WHERE {HERE}", pair(key))
    blobs.remove_unnamed(db, key.namespace, hashes)

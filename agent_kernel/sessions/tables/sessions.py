"""Sessions: made, found, listed, described, removed."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, replace
from typing import NoReturn

from agent_kernel.core.errors import Conflict, SessionBusy, SessionNotFound
from agent_kernel.core.session import MAIN, UNLISTED, Session, SessionKey, SessionUpdate
from agent_kernel.sessions import serialization
from agent_kernel.sessions.tables import blobs, search_texts
from agent_kernel.sessions.tables.rows import HERE, SESSION, changed_rows, pair, session_of, sql_limit

_OF_ITEMS = (
    *("items", "turns", "media", "segments", "branches", "summaries", "summary_claims", "openings"),
    *("files", "grants", "questions"),
)
"""Tables whose rows go when a session is cleared."""


def create(db: sqlite3.Connection, key: SessionKey, title: str, now: float) -> Session:
    db.execute(
        "INSERT INTO sessions (namespace, id, title, created, updated, accessed, revision) VALUES (?, ?, ?, ?, ?, ?, 1)"
        " ON CONFLICT DO NOTHING",
        (key.namespace, key.id, title, now, now, now),
    )
    if changed_rows(db):
        _first_branch(db, key, now)
    return with_counts(db, found(db, key))


def info(db: sqlite3.Connection, key: SessionKey) -> Session | None:
    row = db.execute(f"SELECT {SESSION} FROM sessions WHERE namespace = ? AND id = ?", pair(key)).fetchone()
    return session_of(row) if row else None


def read(db: sqlite3.Connection, key: SessionKey) -> Session | None:
    """What ``info`` gives, with counts."""
    session = info(db, key)
    return with_counts(db, session) if session else None


def with_counts(db: sqlite3.Connection, session: Session) -> Session:
    """Add the number of turns and the seq of the newest item. SQLite counts the turns one by one in an index, so this
    is for those who read a session, and never a part of a write."""
    (turns,) = db.execute(f"SELECT count(*) FROM turns WHERE {HERE}", pair(session.key)).fetchone()
    (last,) = db.execute(
        "SELECT max((SELECT max(seq) FROM items"
        " WHERE namespace = :namespace AND session = :session AND segment = g.id))"
        " FROM (SELECT 0 AS id UNION ALL"
        " SELECT id FROM segments WHERE namespace = :namespace AND session = :session) AS g",
        {"namespace": session.key.namespace, "session": session.key.id},
    ).fetchone()
    return replace(session, last_seq=last or 0, turn_count=turns)


def found(db: sqlite3.Connection, key: SessionKey) -> Session:
    session = info(db, key)
    return missing(key) if session is None else session


@dataclass(frozen=True, slots=True)
class End:
    """Where a session ends on its current branch; ``open`` is the id of the turn that runs there."""

    head: int
    turns: int
    segment: int
    open: str | None


def end(db: sqlite3.Connection, key: SessionKey) -> End | None:
    """All that a new turn needs to know, in one statement."""
    row = db.execute(
        "SELECT s.head, s.turns, s.segment, t.id FROM sessions AS s LEFT JOIN turns AS t"
        " ON t.namespace = s.namespace AND t.session = s.id AND t.state = 'open'"
        " WHERE s.namespace = ? AND s.id = ?",
        pair(key),
    ).fetchone()
    return End(*row) if row else None


def begun(db: sqlite3.Connection, key: SessionKey, now: float) -> End:
    """The end of a session that is made here."""
    create(db, key, "", now)
    return End(0, 0, 0, None)


def missing(key: SessionKey) -> NoReturn:
    raise SessionNotFound(f"There is no session {key.id!r}.", details={"session": key.id})


def must_be_idle(session: End) -> None:
    if session.open is not None:
        raise SessionBusy(
            "Another turn of this session is running.",
            hint="Wait for it or stop it.",
            details={"turn": session.open},
        )


def listed(db: sqlite3.Connection, namespace: str, limit: int | None) -> list[Session]:
    rows = db.execute(
        f"SELECT {SESSION} FROM sessions WHERE namespace = ? AND substr(id, 1, ?) != ?"
        " ORDER BY updated DESC, rowid DESC LIMIT ?",
        (namespace, len(UNLISTED), UNLISTED, sql_limit(limit)),
    ).fetchall()
    return [with_counts(db, session_of(row)) for row in rows]


_RUNS = "EXISTS (SELECT 1 FROM turns AS t WHERE t.state = 'open' AND t.namespace = s.namespace AND t.session = s.id)"


def idle(db: sqlite3.Connection, until: float) -> list[Session]:
    """Of all namespaces, without an open turn, the longest unused first. Reads every row: an index on ``accessed``
    would cost every append more than this costs a sweep."""
    rows = db.execute(
        f"SELECT {SESSION} FROM sessions AS s WHERE accessed <= ? AND NOT {_RUNS} ORDER BY accessed, rowid", (until,)
    )
    return [session_of(row) for row in rows]


def excess(db: sqlite3.Connection, cap: int, namespace: str | None) -> list[Session]:
    """Beyond ``cap`` in the namespace (None: in each), without an open turn, the longest unused first."""
    full = db.execute(
        "SELECT namespace, count(*) FROM sessions WHERE ? IN (namespace, '') GROUP BY namespace HAVING count(*) > ?",
        (namespace or "", cap),
    ).fetchall()
    found: list[Session] = []
    for name, count in full:
        rows = db.execute(
            f"SELECT {SESSION} FROM sessions AS s WHERE namespace = ? AND NOT {_RUNS} ORDER BY accessed, rowid LIMIT ?",
            (name, count - cap),
        )
        found += [session_of(row) for row in rows]
    return found


def describe(db: sqlite3.Connection, key: SessionKey, change: SessionUpdate, now: float) -> Session:
    session = found(db, key)
    chosen_by_another = change.instead_of is not None and session.title != change.instead_of
    fields = {
        "title": None if chosen_by_another else change.title,
        "tags": json.dumps(change.tags, ensure_ascii=False) if change.tags is not None else None,
        "metadata": serialization.encode_json(change.metadata) if change.metadata is not None else None,
        "context": serialization.encode_value(change.context) if change.context is not None else None,
    }
    for name, value in fields.items():
        if value is not None:
            db.execute(f"UPDATE sessions SET {name} = ? WHERE namespace = ? AND id = ?", (value, *pair(key)))
    changed(db, key, now)
    return with_counts(db, found(db, key))


def touch(db: sqlite3.Connection, key: SessionKey, now: float) -> None:
    db.execute("UPDATE sessions SET accessed = ? WHERE namespace = ? AND id = ?", (now, *pair(key)))


def clear(db: sqlite3.Connection, key: SessionKey, now: float) -> None:
    found(db, key)
    no_open_turn(db, key)
    db.execute(
        "INSERT INTO dropped_branches (namespace, session, name) SELECT namespace, session, name FROM branches"
        f" WHERE {HERE} AND name <> ? ON CONFLICT DO NOTHING",
        (*pair(key), MAIN),
    )
    _remove_items(db, key)
    _first_branch(db, key, now)
    db.execute(
        "UPDATE sessions SET head = 0, turns = 0, segment = 0, branch = ? WHERE namespace = ? AND id = ?",
        (MAIN, *pair(key)),
    )
    changed(db, key, now)


def delete(db: sqlite3.Connection, key: SessionKey, revision: int | None) -> bool:
    session = info(db, key)
    if session is None:
        return False
    if revision not in (None, session.revision):
        raise Conflict("The session has changed.", details={"revision": session.revision})
    vacate(db, key)
    db.execute(f"DELETE FROM bindings WHERE {HERE}", pair(key))
    return True


def vacate(db: sqlite3.Connection, key: SessionKey) -> None:
    """The session and all of it go, but not which notebooks have it."""
    no_open_turn(db, key)
    _remove_items(db, key)
    for table in ("dropped_branches", "quarantine"):
        db.execute(f"DELETE FROM {table} WHERE {HERE}", pair(key))
    db.execute("DELETE FROM sessions WHERE namespace = ? AND id = ?", pair(key))


def no_open_turn(db: sqlite3.Connection, key: SessionKey) -> None:
    row = db.execute(f"SELECT id FROM turns WHERE {HERE} AND state = 'open'", pair(key)).fetchone()
    must_be_idle(End(0, 0, 0, row[0] if row else None))


def changed(db: sqlite3.Connection, key: SessionKey, now: float) -> None:
    db.execute(
        "UPDATE sessions SET revision = revision + 1, updated = ?, accessed = ? WHERE namespace = ? AND id = ?",
        (now, now, *pair(key)),
    )


def _first_branch(db: sqlite3.Connection, key: SessionKey, now: float) -> None:
    db.execute(
        "INSERT INTO branches (namespace, session, name, segment, parent, created) VALUES (?, ?, ?, 0, '', ?)",
        (*pair(key), MAIN, now),
    )


def _remove_items(db: sqlite3.Connection, key: SessionKey) -> None:
    named = f"SELECT hash FROM media WHERE {HERE} UNION SELECT hash FROM files WHERE {HERE}"
    hashes = [digest for (digest,) in db.execute(named, (*pair(key), *pair(key)))]
    search_texts.forget_all(db, key)
    for table in _OF_ITEMS:
        db.execute(f"DELETE FROM {table} WHERE {HERE}", pair(key))
    blobs.forget(db, key.namespace, hashes)

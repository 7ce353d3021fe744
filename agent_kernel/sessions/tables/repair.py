"""What is done about each kind of fault: made right where the rest of the tables says what is right, else set aside."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from agent_kernel.core.session import MAIN, SessionKey, StoreFault
from agent_kernel.sessions import serialization
from agent_kernel.sessions.tables import blobs, files, integrity_check, search_texts, segments
from agent_kernel.sessions.tables.integrity_check import Found
from agent_kernel.sessions.tables.rows import HERE, pair

ROUNDS = 5
"""Mending one thing may show another: a turn that was made for items, a call whose result was set aside."""
RECOVERED = "recovered"
SET_ASIDE = "set aside"
_DEFAULTS = {"tags": "[]", "metadata": "{}", "context": "null", "imported": "{}", "usage": "{}", "record": "{}"}

Mend: TypeAlias = Callable[[sqlite3.Connection, Found, float], str]


def verify(db: sqlite3.Connection, namespace: str | None) -> list[StoreFault]:
    of_file = [] if namespace else integrity_check.of_file(db)
    return of_file + [found.told() for found in integrity_check.everywhere(db, namespace)]


def repair(db: sqlite3.Connection, namespace: str | None, now: float) -> list[StoreFault]:
    """Tells every fault, with what was done about it; empty ``mended``: nothing could be."""
    told: list[StoreFault] = []
    for _ in range(ROUNDS):
        mended = 0
        for found in list(integrity_check.everywhere(db, namespace)):
            what = MENDS[found.kind](db, found, now) if found.kind in MENDS else ""
            mended += bool(what)
            if what:
                told.append(found.told(what))
        if not mended:
            break
    return told + [found.told() for found in integrity_check.everywhere(db, namespace)]


def set_aside(
    db: sqlite3.Connection, found: Found, table: str, where: str, values: tuple[Any, ...], *, now: float
) -> str:
    """Moves the rows into the quarantine."""
    cursor = db.execute(f"SELECT * FROM {table} WHERE {where}", values)
    names = [column[0] for column in cursor.description]
    for row in cursor.fetchall():
        columns = dict(zip(names, row, strict=True))
        data = next((value for value in columns.values() if isinstance(value, bytes)), None)
        if table == "blobs" and not data and (files := blobs.beside(db)) is not None:
            data = files.get(columns["namespace"], columns["hash"])
        text = json.dumps({name: value for name, value in columns.items() if not isinstance(value, bytes)})
        db.execute(
            "INSERT INTO quarantine (namespace, session, origin, row, data, why, time) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*pair(found.key), table, text, data, f"{found.kind}: {found.detail}", now),
        )
    db.execute(f"DELETE FROM {table} WHERE {where}", values)
    if table == "items":
        search_texts.forget_all(db, found.key)
    return SET_ASIDE


def _no_session(db: sqlite3.Connection, found: Found, now: float) -> str:
    """A session is made for items and turns; what else is left of one that was deleted is set aside. Nothing tells
    whether that session was imported, so it counts as imported."""
    table = found.facts["table"]
    if db.execute("SELECT 1 FROM sessions WHERE namespace = ? AND id = ?", pair(found.key)).fetchone():
        return "a session was made"
    if table not in ("items", "turns"):
        return set_aside(db, found, table, HERE, pair(found.key), now=now)
    db.execute(
        "INSERT INTO sessions (namespace, id, title, created, updated, accessed, revision, imported)"
        " VALUES (?, ?, ?, ?, ?, ?, 1, '{}')",
        (*pair(found.key), RECOVERED, now, now, now),
    )
    return "a session was made"


def _column_of_session(db: sqlite3.Connection, found: Found, now: float) -> str:
    name = found.facts["column"]
    _keep_value(db, found, "sessions", f"SELECT {name} FROM sessions WHERE namespace = ? AND id = ?", now)
    db.execute(f"UPDATE sessions SET {name} = ? WHERE namespace = ? AND id = ?", (_DEFAULTS[name], *pair(found.key)))
    return SET_ASIDE


def _column_of_turn(db: sqlite3.Connection, found: Found, now: float) -> str:
    name, rowid = found.facts["column"], found.facts["rowid"]
    _keep_value(db, found, "turns", f"SELECT {name} FROM turns WHERE {HERE} AND rowid = {int(rowid)}", now)
    db.execute(f"UPDATE turns SET {name} = ? WHERE rowid = ?", (_DEFAULTS[name], rowid))
    return SET_ASIDE


def _keep_value(db: sqlite3.Connection, found: Found, table: str, query: str, now: float) -> None:
    (value,) = db.execute(query, pair(found.key)).fetchone()
    db.execute(
        "INSERT INTO quarantine (namespace, session, origin, row, why, time) VALUES (?, ?, ?, ?, ?, ?)",
        (*pair(found.key), table, json.dumps({found.facts["column"]: str(value)}), found.detail, now),
    )


def _number_of_session(db: sqlite3.Connection, found: Found, now: float) -> str:
    ((name, value),) = found.facts.items()
    db.execute(f"UPDATE sessions SET {name} = ? WHERE namespace = ? AND id = ?", (value, *pair(found.key)))
    return f"{name} is {value} now"


def _no_turn(db: sqlite3.Connection, found: Found, now: float) -> str:
    """Its items say where it was; it is the last that is counted, since nobody knows its number."""
    turn = found.facts["turn"]
    seq, segment, cell, epoch, time = db.execute(
        f"SELECT seq, segment, cell, epoch, time FROM items WHERE {HERE} AND turn = ? ORDER BY seq",
        (*pair(found.key), turn),
    ).fetchone()
    db.execute("UPDATE sessions SET turns = turns + 1 WHERE namespace = ? AND id = ?", pair(found.key))
    db.execute(
        "INSERT INTO turns (namespace, session, id, ordinal, state, reason, cell, epoch, location, model, opened,"
        " closed, usage, record, since, segment, pending, owner, instance, heartbeat) SELECT namespace, id, ?, turns,"
        " 'interrupted', ?, ?, ?, '', '', ?, ?, '{}', '{}', ?, ?, '{}', '{}', '', ? FROM sessions"
        " WHERE namespace = ? AND id = ?",
        (turn, RECOVERED, cell, epoch, time, now, seq - 1, segment, now, *pair(found.key)),
    )
    return "a turn was made"


def _segment(db: sqlite3.Connection, found: Found, now: float) -> str:
    db.execute(
        f"UPDATE segments SET parent = 0, since = 0 WHERE {HERE} AND id = ?", (*pair(found.key), found.facts["segment"])
    )
    return "begins at the beginning now"


def _lost_segment(db: sqlite3.Connection, found: Found, now: float) -> str:
    segment = found.facts["segment"]
    db.execute(
        "INSERT INTO segments (namespace, session, id, parent, since) VALUES (?, ?, ?, 0, 0)",
        (*pair(found.key), segment),
    )
    return _name_end(db, found.key, segment, now)


def _hidden_items(db: sqlite3.Connection, found: Found, now: float) -> str:
    """A segment that no branch goes through gets one; items behind the end of another's part get a segment first."""
    segment, behind = found.facts["segment"], found.facts["behind"]
    if behind is None:
        return _name_end(db, found.key, segment, now)
    here = pair(found.key)
    ((since,),) = db.execute(
        f"SELECT coalesce(max(seq), 0) FROM items WHERE {HERE} AND segment = ? AND seq <= ?", (*here, segment, behind)
    )
    fresh = segments.grow(db, found.key, segment, since)
    moved = f"UPDATE items SET segment = ? WHERE {HERE} AND segment = ? AND seq > ?"
    db.execute(moved, (fresh, *here, segment, behind))
    db.execute(
        f"UPDATE turns SET segment = ? WHERE {HERE} AND segment = ? AND since >= ?", (fresh, *here, segment, since)
    )
    return _name_end(db, found.key, fresh, now)


def _name_end(db: sqlite3.Connection, key: SessionKey, segment: int, now: float) -> str:
    name = f"{RECOVERED}-{segment}"
    db.execute(
        "INSERT OR REPLACE INTO branches (namespace, session, name, segment, parent, created)"
        " VALUES (?, ?, ?, ?, '', ?)",
        (*pair(key), name, segment, now),
    )
    return f"on the branch {name} now"


def _branch(db: sqlite3.Connection, found: Found, now: float) -> str:
    return set_aside(db, found, "branches", f"{HERE} AND name = ?", (*pair(found.key), found.facts["name"]), now=now)


def _current_branch(db: sqlite3.Connection, found: Found, now: float) -> str:
    """The one that is named, else the first there is, else one is made."""
    row = db.execute(
        "SELECT b.name, b.segment FROM branches AS b JOIN sessions AS s"
        " ON s.namespace = b.namespace AND s.id = b.session"
        " WHERE b.namespace = ? AND b.session = ? ORDER BY b.name <> s.branch, b.rowid",
        pair(found.key),
    ).fetchone()
    if row is None:
        ((segment,),) = db.execute(f"SELECT coalesce(max(segment), 0) FROM items WHERE {HERE}", pair(found.key))
        row = (MAIN, segment)
        db.execute(
            "INSERT INTO branches (namespace, session, name, segment, parent, created) VALUES (?, ?, ?, ?, '', ?)",
            (*pair(found.key), *row, now),
        )
    db.execute("UPDATE sessions SET branch = ?, segment = ? WHERE namespace = ? AND id = ?", (*row, *pair(found.key)))
    return f"{row[0]} is the current one now"


def _items(db: sqlite3.Connection, found: Found, now: float) -> str:
    for rowid in found.facts["rowids"]:
        set_aside(db, found, "items", "rowid = ?", (rowid,), now=now)
    return SET_ASIDE


def _columns(db: sqlite3.Connection, found: Found, now: float) -> str:
    rowid = found.facts["rowid"]
    (body,) = db.execute("SELECT body FROM items WHERE rowid = ?", (rowid,)).fetchone()
    message = serialization.decode(body)
    db.execute("UPDATE items SET role = ?, call_id = ? WHERE rowid = ?", (message.role, message.call_id, rowid))
    search_texts.forget_all(db, found.key)
    return "as the message says"


def _media_row(db: sqlite3.Connection, found: Found, now: float) -> str:
    """Repeats what items say, so nothing is lost with it."""
    row = (*pair(found.key), found.facts["hash"], found.facts["seq"])
    if found.facts["wanted"]:
        db.execute("INSERT INTO media (namespace, session, hash, seq) VALUES (?, ?, ?, ?)", row)
        return "noted"
    db.execute(f"DELETE FROM media WHERE {HERE} AND hash = ? AND seq = ?", row)
    return "not noted any more"


def _blob(db: sqlite3.Connection, found: Found, now: float) -> str:
    space, digest = found.key.namespace, found.facts["hash"]
    if found.kind == "unused_bytes" and blobs.named(db, space, digest):  # an item was found to name it after all
        return ""
    return set_aside(db, found, "blobs", "namespace = ? AND hash = ?", (space, digest), now=now)


def _file(db: sqlite3.Connection, found: Found, now: float) -> str:
    """It stays, as one whose bytes were lost; what is there in their place is set aside unless others name it."""
    files.lose(db, found.key, found.facts["id"])
    space, digest = found.key.namespace, found.facts["hash"]
    if not blobs.named(db, space, digest):
        set_aside(db, found, "blobs", "namespace = ? AND hash = ?", (space, digest), now=now)
    return "noted that its bytes were lost"


def _mark(db: sqlite3.Connection, found: Found, now: float) -> str:
    facts = found.facts
    where = f"{HERE} AND {facts['column']} = ?"
    return set_aside(db, found, facts["table"], where, (*pair(found.key), facts["seq"]), now=now)


MENDS: Mapping[str, Mend] = MappingProxyType(
    {
        "no_session": _no_session,
        "description": _column_of_session,
        "turn_record": _column_of_turn,
        "head": _number_of_session,
        "turn_count": _number_of_session,
        "bytes": _number_of_session,
        "no_turn": _no_turn,
        "segment": _segment,
        "lost_segment": _lost_segment,
        "hidden_items": _hidden_items,
        "branch": _branch,
        "current_branch": _current_branch,
        "body": _items,
        "no_call": _items,
        "no_result": _items,
        "columns": _columns,
        "media_row": _media_row,
        "unused_bytes": _blob,
        "wrong_bytes": _blob,
        "file": _file,
        "summary": _mark,
        "opening": _mark,
    }
)
"""``no_bytes`` can not be mended: the item stays, its picture is lost."""

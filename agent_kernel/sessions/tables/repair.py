"""Repairs each kind of fault. A row whose correct content follows from the other tables is corrected; any other faulty
row is moved to the quarantine."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from agent_kernel.core.session import MAIN, SessionKey, StoreFault, Turn
from agent_kernel.sessions import serialization
from agent_kernel.sessions.tables import blobs, files, integrity_check, search_texts, segments, sessions, turns
from agent_kernel.sessions.tables.integrity_check import LocatedFault
from agent_kernel.sessions.tables.rows import HERE, has_row, insert_row, pair, update_session

ROUNDS = 5
"""Maximum number of passes, since a repair may reveal another fault. For example, the turn that was created for items
may have a call whose result was moved away."""
RECOVERED = "recovered"
SET_ASIDE = "set aside"
_DEFAULTS = {"tags": "[]", "metadata": "{}", "context": "null", "imported": "{}", "usage": "{}", "record": "{}"}

Repair: TypeAlias = Callable[[sqlite3.Connection, LocatedFault, float], str]


def verify(db: sqlite3.Connection, namespace: str | None) -> list[StoreFault]:
    of_file = [] if namespace else integrity_check.check_file(db)
    return of_file + [fault.to_fault() for fault in integrity_check.find_faults(db, namespace)]


def repair(db: sqlite3.Connection, namespace: str | None, now: float) -> list[StoreFault]:
    """Repair the faults that can be repaired, and return all faults. The field ``mended`` of a fault states how it was
    repaired; it is empty if the fault could not be repaired."""
    repaired: list[StoreFault] = []
    for _ in range(ROUNDS):
        mended = 0
        for fault in list(integrity_check.find_faults(db, namespace)):
            how = REPAIRS[fault.kind](db, fault, now) if fault.kind in REPAIRS else ""
            mended += bool(how)
            if how:
                repaired.append(fault.to_fault(how))
        if not mended:
            break
    return repaired + [fault.to_fault() for fault in integrity_check.find_faults(db, namespace)]


def set_aside(
    db: sqlite3.Connection, fault: LocatedFault, table: str, where: str, values: tuple[Any, ...], *, now: float
) -> str:
    """Move the rows of ``table`` that match ``where`` into the quarantine. Returns SET_ASIDE, the text that reports
    this kind of repair."""
    cursor = db.execute(f"SELECT * FROM {table} WHERE {where}", values)
    names = [column[0] for column in cursor.description]
    for row in cursor.fetchall():
        columns = dict(zip(names, row, strict=True))
        data = next((value for value in columns.values() if isinstance(value, bytes)), None)
        if table == "blobs" and not data and (files := blobs.files_of(db)) is not None:
            data = files.get(columns["namespace"], columns["hash"])
        text = json.dumps({name: value for name, value in columns.items() if not isinstance(value, bytes)})
        why = f"{fault.kind}: {fault.detail}"
        insert_row(db, "quarantine", fault.key, origin=table, row=text, data=data, why=why, time=now)
    db.execute(f"DELETE FROM {table} WHERE {where}", values)
    if table == "items":
        search_texts.delete_session_texts(db, fault.key)
    return SET_ASIDE


def _no_session(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    """Create a session for items and turns that have none; move rows of other tables to the quarantine. It is unknown
    whether the lost session was imported, so the new one counts as imported."""
    table = fault.facts["table"]
    if table in ("items", "turns"):
        db.execute(
            "INSERT INTO sessions (namespace, id, title, created, updated, accessed, revision, imported)"
            " VALUES (?, ?, ?, ?, ?, ?, 1, '{}') ON CONFLICT DO NOTHING",
            (*pair(fault.key), RECOVERED, now, now, now),
        )
    elif not has_row(db, "SELECT 1 FROM sessions WHERE namespace = ? AND id = ?", pair(fault.key)):
        return set_aside(db, fault, table, HERE, pair(fault.key), now=now)
    return "a session was created"


def _column_of_session(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    name = fault.facts["column"]
    _keep_value(db, fault, "sessions", f"SELECT {name} FROM sessions WHERE namespace = ? AND id = ?", now)
    update_session(db, fault.key, **{name: _DEFAULTS[name]})
    return SET_ASIDE


def _column_of_turn(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    name, rowid = fault.facts["column"], fault.facts["rowid"]
    _keep_value(db, fault, "turns", f"SELECT {name} FROM turns WHERE {HERE} AND rowid = {int(rowid)}", now)
    db.execute(f"UPDATE turns SET {name} = ? WHERE rowid = ?", (_DEFAULTS[name], rowid))
    return SET_ASIDE


def _keep_value(db: sqlite3.Connection, fault: LocatedFault, table: str, query: str, now: float) -> None:
    (value,) = db.execute(query, pair(fault.key)).fetchone()
    row = json.dumps({fault.facts["column"]: str(value)})
    insert_row(db, "quarantine", fault.key, origin=table, row=row, why=fault.detail, time=now)


def _number_of_session(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    ((name, value),) = fault.facts.items()
    update_session(db, fault.key, **{name: value})
    return f"{name} was set to {value}"


def _no_turn(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    """Create the missing turn from its items. It gets the last ordinal, since its own is unknown."""
    turn = fault.facts["turn"]
    seq, segment, cell, epoch, time = db.execute(
        f"SELECT seq, segment, cell, epoch, time FROM items WHERE {HERE} AND turn = ? ORDER BY seq",
        (*pair(fault.key), turn),
    ).fetchone()
    db.execute("UPDATE sessions SET turns = turns + 1 WHERE namespace = ? AND id = ?", pair(fault.key))
    if end := sessions.read_end(db, fault.key):
        times = {"opened": time, "closed": now}
        restored_turn = Turn(turn, fault.key, end.turns, "interrupted", RECOVERED, cell, epoch, **times, since=seq - 1)
        turns.insert_turn_row(db, restored_turn, segment, now)
    return "the turn was created from its items"


def _segment(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    db.execute(
        f"UPDATE segments SET parent = 0, since = 0 WHERE {HERE} AND id = ?", (*pair(fault.key), fault.facts["segment"])
    )
    return "the segment now begins at the start of the session"


def _lost_segment(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    segment = fault.facts["segment"]
    insert_row(db, "segments", fault.key, id=segment, parent=0, since=0)
    return _name_end(db, fault.key, segment, now)


def _hidden_items(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    """Create a branch for items that no branch contains. If branches contain the beginning of their segment, the items
    are moved to a new segment first."""
    segment, behind = fault.facts["segment"], fault.facts["behind"]
    if behind is None:
        return _name_end(db, fault.key, segment, now)
    session_key = pair(fault.key)
    ((since,),) = db.execute(
        f"SELECT coalesce(max(seq), 0) FROM items WHERE {HERE} AND segment = ? AND seq <= ?",
        (*session_key, segment, behind),
    )
    fresh = segments.insert_segment(db, fault.key, segment, since)
    moved = f"UPDATE items SET segment = ? WHERE {HERE} AND segment = ? AND seq > ?"
    db.execute(moved, (fresh, *session_key, segment, behind))
    db.execute(
        f"UPDATE turns SET segment = ? WHERE {HERE} AND segment = ? AND since >= ?",
        (fresh, *session_key, segment, since),
    )
    return _name_end(db, fault.key, fresh, now)


def _name_end(db: sqlite3.Connection, key: SessionKey, segment: int, now: float) -> str:
    name = f"{RECOVERED}-{segment}"
    insert_row(db, "branches", key, or_replace=True, name=name, segment=segment, parent="", created=now)
    return f"the items are on the new branch {name}"


def _current_branch(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    """Make the branch that the session names the current branch. If that branch does not exist, use the first branch;
    if the session has no branch, create one."""
    row = db.execute(
        "SELECT b.name, b.segment FROM branches AS b JOIN sessions AS s"
        " ON s.namespace = b.namespace AND s.id = b.session"
        " WHERE b.namespace = ? AND b.session = ? ORDER BY b.name <> s.branch, b.rowid",
        pair(fault.key),
    ).fetchone()
    if row is None:
        ((segment,),) = db.execute(f"SELECT coalesce(max(segment), 0) FROM items WHERE {HERE}", pair(fault.key))
        row = (MAIN, segment)
        insert_row(db, "branches", fault.key, name=MAIN, segment=segment, parent="", created=now)
    name, segment = row
    update_session(db, fault.key, branch=name, segment=segment)
    return f"{name} was made the current branch"


def _items(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    for rowid in fault.facts["rowids"]:
        set_aside(db, fault, "items", "rowid = ?", (rowid,), now=now)
    return SET_ASIDE


def _columns(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    rowid = fault.facts["rowid"]
    (body,) = db.execute("SELECT body FROM items WHERE rowid = ?", (rowid,)).fetchone()
    message = serialization.decode(body)
    db.execute("UPDATE items SET role = ?, call_id = ? WHERE rowid = ?", (message.role, message.call_id, rowid))
    search_texts.delete_session_texts(db, fault.key)
    return "the columns were corrected from the message"


def _media_row(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    """Add a missing row of ``media``, or remove a wrong row. These rows only repeat data of the items, so nothing is
    lost."""
    digest, seq = fault.facts["hash"], fault.facts["seq"]
    if fault.facts["wanted"]:
        insert_row(db, "media", fault.key, hash=digest, seq=seq)
        return "the row was added"
    db.execute(f"DELETE FROM media WHERE {HERE} AND hash = ? AND seq = ?", (*pair(fault.key), digest, seq))
    return "the row was removed"


def _blob(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    space, digest = fault.key.namespace, fault.facts["hash"]
    if fault.kind == "unused_bytes" and blobs.is_named(db, space, digest):  # a repaired item names it after all
        return ""
    return set_aside(db, fault, "blobs", "namespace = ? AND hash = ?", (space, digest), now=now)


def _file(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    """Keep the file and mark its bytes as lost. Damaged bytes are moved to the quarantine, unless a message or another
    file refers to them."""
    files.mark_lost(db, fault.key, fault.facts["id"])
    space, digest = fault.key.namespace, fault.facts["hash"]
    if not blobs.is_named(db, space, digest):
        set_aside(db, fault, "blobs", "namespace = ? AND hash = ?", (space, digest), now=now)
    return "the file was marked as lost"


def _set_row_aside(db: sqlite3.Connection, fault: LocatedFault, now: float) -> str:
    facts = fault.facts
    where = f"{HERE} AND {facts['column']} = ?"
    return set_aside(db, fault, facts["table"], where, (*pair(fault.key), facts["value"]), now=now)


REPAIRS: Mapping[str, Repair] = MappingProxyType(
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
        "branch": _set_row_aside,
        "current_branch": _current_branch,
        "body": _items,
        "no_call": _items,
        "no_result": _items,
        "columns": _columns,
        "media_row": _media_row,
        "unused_bytes": _blob,
        "wrong_bytes": _blob,
        "file": _file,
        "summary": _set_row_aside,
        "opening": _set_row_aside,
    }
)
"""The function that repairs each kind of fault. There is none for ``no_bytes``: the item stays, and its media cannot be
restored."""

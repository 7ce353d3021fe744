"""Summaries: one claim at a time, and one row for each that was written."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from agent_kernel.core.errors import Conflict
from agent_kernel.core.session import SUMMARY_CLAIM_S, Owner, SessionKey, Summary
from agent_kernel.sessions import serialization
from agent_kernel.sessions.tables import segments, sessions
from agent_kernel.sessions.tables.rows import HERE, changed_rows, pair
from agent_kernel.sessions.tables.segments import Piece


def listed(db: sqlite3.Connection, key: SessionKey, way: Sequence[Piece]) -> list[Summary]:
    """Those that hold on a way, in order."""
    found: list[Summary] = []
    for piece in way:
        rows = db.execute(
            f"SELECT id, last, text, model, usage, reason, time FROM summaries WHERE {HERE} AND segment = ?"
            " AND last <= ? ORDER BY last DESC, id DESC",
            (*pair(key), piece.segment, piece.until),
        )
        found += [
            Summary(key, last, text, model, json.loads(usage), reason, id, time)
            for id, last, text, model, usage, reason, time in rows
        ]
    return found[::-1]


def claim(db: sqlite3.Connection, key: SessionKey, owner: Owner, now: float) -> bool:
    sessions.found(db, key)
    db.execute(
        "INSERT INTO summary_claims (namespace, session, instance, time) VALUES (:namespace, :session, :instance, :now)"
        " ON CONFLICT DO UPDATE SET instance = excluded.instance, time = excluded.time WHERE time <= :stale",
        {
            "namespace": key.namespace,
            "session": key.id,
            "instance": owner.instance,
            "now": now,
            "stale": now - SUMMARY_CLAIM_S,
        },
    )
    return bool(db.execute("SELECT changes()").fetchone()[0])


def add(db: sqlite3.Connection, summary: Summary, owner: Owner, now: float) -> Summary:
    key = summary.key
    held = release(db, key, owner)
    way = segments.of_branch(db, key, None)
    newest = listed(db, key, way)[-1:]
    if not held or any(summary.last <= earlier.last for earlier in newest):
        raise Conflict("Another summary was written meanwhile.", details={"session": key.id})
    segment = _segment_of(db, key, way, summary.last)
    if segment is None:
        raise Conflict(f"Item {summary.last} is not on the current branch.", details={"session": key.id})
    made = db.execute(
        "INSERT INTO summaries (namespace, session, segment, last, text, model, usage, reason, time)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *pair(key),
            segment,
            summary.last,
            serialization.text(summary.text, "summary"),
            summary.model,
            serialization.encode_json(summary.usage),
            summary.reason,
            now,
        ),
    )
    sessions.changed(db, key, now)
    return replace(summary, id=made.lastrowid or 0, time=now)


def release(db: sqlite3.Connection, key: SessionKey, owner: Owner) -> bool:
    db.execute(f"DELETE FROM summary_claims WHERE {HERE} AND instance = ?", (*pair(key), owner.instance))
    return changed_rows(db) == 1


def undo(db: sqlite3.Connection, key: SessionKey, now: float) -> Summary | None:
    newest = listed(db, key, segments.of_branch(db, key, None))[-1:]
    if not newest:
        return None
    db.execute("DELETE FROM summaries WHERE id = ?", (newest[0].id,))
    sessions.changed(db, key, now)
    return newest[0]


def _segment_of(db: sqlite3.Connection, key: SessionKey, way: Sequence[Piece], seq: int) -> int | None:
    for piece in way:
        row = db.execute(
            f"SELECT 1 FROM items WHERE {HERE} AND segment = ? AND seq = ?", (*pair(key), piece.segment, seq)
        ).fetchone()
        if row and seq <= piece.until:
            return piece.segment
    return None

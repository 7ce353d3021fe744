"""SQL for summaries: a row for every summary that was written, and the claims by which only one process at a time
writes a summary of a session."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from agent_kernel.core.errors import Conflict
from agent_kernel.core.session import SUMMARY_CLAIM_S, Owner, SessionKey, Summary
from agent_kernel.sessions import serialization
from agent_kernel.sessions.serialization import fields_to_json
from agent_kernel.sessions.tables import segments, sessions
from agent_kernel.sessions.tables.rows import HERE, SUMMARY_COLUMNS, count_changes, insert_row, pair, summary_from_row
from agent_kernel.sessions.tables.segments import SegmentRange


def select_summaries(db: sqlite3.Connection, key: SessionKey, path: Sequence[SegmentRange]) -> list[Summary]:
    """Return the summaries that apply to a branch, given as its ``path``, in order."""
    summaries: list[Summary] = []
    for piece in path:
        rows = db.execute(
            f"SELECT {SUMMARY_COLUMNS} FROM summaries WHERE {HERE} AND segment = ?"
            # A summary of items after the branch point applies only to the branch that contains them.
            " AND last <= ? ORDER BY last DESC, id DESC",
            (*pair(key), piece.segment, piece.until),
        )
        summaries += [summary_from_row(key, row) for row in rows]
    return summaries[::-1]


def insert_claim(db: sqlite3.Connection, key: SessionKey, owner: Owner, now: float) -> bool:
    """Claim the right to write the next summary of the session. Returns False if another claim is held that has not
    expired."""
    sessions.require_session(db, key)
    db.execute(
        # A single statement ensures that two processes cannot both claim. If another valid claim exists, the upsert
        # changes no row, and changes() is 0.
        "INSERT INTO summary_claims (namespace, session, instance, time) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET instance = excluded.instance, time = excluded.time WHERE time <= ?",
        (*pair(key), owner.instance, now, now - SUMMARY_CLAIM_S),
    )
    return count_changes(db) == 1


def insert_summary(db: sqlite3.Connection, summary: Summary, owner: Owner, now: float) -> Summary:
    key = summary.key
    held = release_claim(db, key, owner)
    path = segments.branch_path(db, key, None)
    newest = select_summaries(db, key, path)[-1:]
    if not held or any(summary.last <= earlier.last for earlier in newest):
        raise Conflict("Another summary was written meanwhile.", details={"session": key.id})
    segment = segments.find_segment(db, key, summary.last, path)
    if segment is None:
        raise Conflict(
            f"The summary ends at item {summary.last}, which is not on the current branch.", details={"session": key.id}
        )
    serialization.text(summary.text, "summary")
    stored = replace(summary, time=now)
    insert_summary_row(db, stored, segment)
    (id,) = db.execute("SELECT last_insert_rowid()").fetchone()
    sessions.mark_changed(db, key, now)
    return replace(stored, id=int(id))


def insert_summary_row(db: sqlite3.Connection, summary: Summary, segment: int) -> None:
    columns = fields_to_json(summary, "key", "id", "usage")
    usage = serialization.encode_value(summary.usage)
    insert_row(db, "summaries", summary.key, segment=segment, usage=usage, **columns)


def release_claim(db: sqlite3.Connection, key: SessionKey, owner: Owner) -> bool:
    """Release the claim. Returns whether ``owner`` held it."""
    db.execute(f"DELETE FROM summary_claims WHERE {HERE} AND instance = ?", (*pair(key), owner.instance))
    return count_changes(db) == 1


def delete_newest(db: sqlite3.Connection, key: SessionKey, now: float) -> Summary | None:
    newest = select_summaries(db, key, segments.branch_path(db, key, None))[-1:]
    if not newest:
        return None
    db.execute("DELETE FROM summaries WHERE id = ?", (newest[0].id,))
    sessions.mark_changed(db, key, now)
    return newest[0]

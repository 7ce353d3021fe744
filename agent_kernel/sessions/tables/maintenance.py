"""Counts the sessions, items and bytes of a store, and returns unused space to the disk."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from agent_kernel.core.errors import StoreError
from agent_kernel.core.session import NotebookBinding
from agent_kernel.sessions.tables import search_index

CHECKPOINT_S = 10.0
"""Maximum seconds to wait for readers in other processes, which prevent the journal from being emptied."""


def read_stats(db: sqlite3.Connection, namespace: str | None) -> dict[str, Any]:
    where, values = "WHERE ?1 IS NULL OR namespace = ?1", (namespace,)
    sessions, turns, size, created, used, spaces = db.execute(
        "SELECT count(*), coalesce(sum(turns), 0), coalesce(sum(bytes), 0), min(created), max(accessed),"
        f" count(DISTINCT namespace) FROM sessions {where}",
        values,
    ).fetchone()
    media, media_bytes = db.execute(f"SELECT count(*), coalesce(sum(size), 0) FROM blobs {where}", values).fetchone()
    return {
        "namespaces": spaces,
        "sessions": sessions,
        "turns": turns,
        "items": _count(db, "items", where, values),
        "bytes": size,
        "media": media,
        "media_bytes": media_bytes,
        "files": _count(db, "files", where, values),
        "bindings": _count(db, "bindings", where, values),
        "set_aside": _count(db, "quarantine", where, values),
        "first_made": created,
        "last_used": used,
        "file_bytes": file_bytes(db),
    }


def _count(db: sqlite3.Connection, table: str, where: str, values: tuple[str | None]) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table} {where}", values).fetchone()[0])


def file_bytes(db: sqlite3.Connection) -> int:
    """Return the size of the database in bytes, without its journal."""
    return int(db.execute("PRAGMA page_count").fetchone()[0]) * int(db.execute("PRAGMA page_size").fetchone()[0])


def select_bindings(db: sqlite3.Connection, namespace: str | None) -> list[NotebookBinding]:
    rows = db.execute(
        "SELECT namespace, root, path, session FROM bindings WHERE ?1 IS NULL OR namespace = ?1"
        " ORDER BY namespace, root, path",
        (namespace,),
    )
    return [NotebookBinding(*row) for row in rows]


def vacuum(db: sqlite3.Connection) -> int:
    """Rewrite the whole file, so that no deleted content stays in it, and empty the journal, which may contain old
    pages. Returns the bytes freed.

    Runs outside a transaction. Needs as much free space as the file has."""
    before = file_bytes(db)
    search_index.merge_all(db)
    db.execute("VACUUM")
    _empty_journal(db)
    return max(0, before - file_bytes(db))


def _empty_journal(db: sqlite3.Connection) -> None:
    deadline = time.monotonic() + CHECKPOINT_S
    while db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        if time.monotonic() > deadline:
            raise StoreError(
                "The file was rewritten, but its journal has the old data: another program has the file open.",
                hint="Deleted text may be in the file ending in -wal until 'agent-kernel sessions vacuum' empties it.",
            )
        time.sleep(0.05)


def delete_set_aside(db: sqlite3.Connection, namespace: str | None) -> None:
    db.execute("DELETE FROM quarantine WHERE ?1 IS NULL OR namespace = ?1", (namespace,))

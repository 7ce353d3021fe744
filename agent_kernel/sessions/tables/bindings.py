"""SQL for bindings, which record the session of each notebook."""

from __future__ import annotations

import sqlite3

from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.tables import sessions
from agent_kernel.sessions.tables.rows import HERE, count_changes, insert_row, pair


def bind(db: sqlite3.Connection, key: SessionKey, root: str, path: str) -> None:
    sessions.require_session(db, key)
    insert_row(db, "bindings", key, or_replace=True, root=root, path=path)


def unbind(db: sqlite3.Connection, namespace: str, root: str, path: str) -> bool:
    place = (namespace, root, path)
    db.execute("DELETE FROM bindings WHERE namespace = ? AND root = ? AND path = ?", place)
    return count_changes(db) > 0


def select_bound_session(db: sqlite3.Connection, namespace: str, root: str, path: str) -> str | None:
    row = db.execute(
        "SELECT session FROM bindings WHERE namespace = ? AND root = ? AND path = ?", (namespace, root, path)
    ).fetchone()
    return str(row[0]) if row else None


def move_bindings(db: sqlite3.Connection, root: str, old: str, new: str) -> int:
    """Change the bindings of a file, or of everything in a directory, from the path ``old`` to ``new``, and return how
    many changed. An existing binding at the new path is replaced, since its file was overwritten."""
    # substr instead of LIKE: paths may contain % and _, and LIKE ignores case.
    inside = "root = :root AND (path = :old OR substr(path, 1, length(:old) + 1) = :old || '/')"
    place = {"root": root, "old": old}
    rows = db.execute(f"SELECT namespace, path, session FROM bindings WHERE {inside}", place).fetchall()
    db.execute(f"DELETE FROM bindings WHERE {inside}", place)
    db.executemany(
        "INSERT OR REPLACE INTO bindings (namespace, root, path, session) VALUES (?, ?, ?, ?)",
        [(namespace, root, new + path[len(old) :], session) for namespace, path, session in rows],
    )
    return len(rows)


def select_paths(db: sqlite3.Connection, root: str, key: SessionKey) -> list[str]:
    rows = db.execute(f"SELECT path FROM bindings WHERE {HERE} AND root = ? ORDER BY path", (*pair(key), root))
    return [path for (path,) in rows]

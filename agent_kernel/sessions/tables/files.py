"""SQL for the files of sessions. Name, type, size and origin are in a row; the bytes are a blob, which several files
may share."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path

from agent_kernel.core.errors import Conflict, InvalidRequest
from agent_kernel.core.files import File
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions import serialization
from agent_kernel.sessions.tables import blobs, sessions
from agent_kernel.sessions.tables.rows import HERE, insert_row, pair

FILE = "id, name, mime, size, created, format, purpose, tool, round, turn, hash, preview, error, message, expires"
GONE = "gone"
"""Value of ``error`` of a file whose bytes were lost."""


def store_files(
    db: sqlite3.Connection, key: SessionKey, files: Sequence[tuple[File, bytes | Path | None]], now: float
) -> None:
    sessions.require_session(db, key)
    for file, body in files:
        _check(file, body)
        if select_file(db, key, file.id) is not None:
            raise Conflict(f"A file {file.id!r} exists already.", details={"file": file.id})
        if body is not None:
            blobs.store_file(db, key.namespace, file, body)
        insert_files(db, key, [file])
    sessions.mark_changed(db, key, now)


def insert_files(db: sqlite3.Connection, key: SessionKey, files: Sequence[File]) -> None:
    """Insert the rows of files. Their bytes must already be stored, or be stored in the same transaction."""
    for file in files:
        insert_row(db, "files", key, **asdict(file))


def select_file(db: sqlite3.Connection, key: SessionKey, id: str) -> File | None:
    row = db.execute(f"SELECT {FILE} FROM files WHERE {HERE} AND id = ?", (*pair(key), id)).fetchone()
    return File(*row) if row else None


def select_files(db: sqlite3.Connection, key: SessionKey) -> list[File]:
    """Return the files of a session, oldest first."""
    rows = db.execute(f"SELECT {FILE} FROM files WHERE {HERE} ORDER BY created, rowid", pair(key))
    return [File(*row) for row in rows]


def select_namespace_files(
    db: sqlite3.Connection, namespace: str, among: Collection[str] | None
) -> list[tuple[SessionKey, File]]:
    """Return the files of a namespace, newest first. ``among`` are the ids of the sessions to read (None: all)."""
    rows = db.execute(
        f"SELECT session, {FILE} FROM files WHERE namespace = ? ORDER BY created DESC, rowid DESC", (namespace,)
    )
    return [(SessionKey(namespace, row[0]), File(*row[1:])) for row in rows if among is None or row[0] in among]


def select_owners(db: sqlite3.Connection, namespace: str, id: str) -> list[SessionKey]:
    rows = db.execute(
        "SELECT session FROM files WHERE namespace = ? AND id = ? ORDER BY created, rowid", (namespace, id)
    )
    return [SessionKey(namespace, session) for (session,) in rows]


def read_body(db: sqlite3.Connection, key: SessionKey, id: str) -> bytes | Path | None:
    file = select_file(db, key, id)
    return blobs.read_file_body(db, key.namespace, file) if file is not None and not file.error else None


def delete_file(db: sqlite3.Connection, key: SessionKey, id: str, now: float) -> bool:
    file = select_file(db, key, id)
    if file is None:
        return False
    db.execute(f"DELETE FROM files WHERE {HERE} AND id = ?", (*pair(key), id))
    blobs.remove_unnamed(db, key.namespace, [file.hash])
    sessions.mark_changed(db, key, now)
    return True


def copy_files(
    db: sqlite3.Connection, key: SessionKey, target: SessionKey, ordinals: Collection[int], *, all: bool
) -> None:
    """Copy the files of the turns with these ordinals (which count from 1) to the session ``target``. ``all`` also
    copies every file that a person uploaded."""
    chosen = [
        file for file in select_files(db, key) if file.turn + 1 in ordinals or (all and file.purpose != "agent_output")
    ]
    blobs.copy_blobs(db, key.namespace, target.namespace, sorted({file.hash for file in chosen if file.hash}))
    insert_files(db, target, chosen)


def mark_lost(db: sqlite3.Connection, key: SessionKey, id: str) -> None:
    """Record that the bytes of a file are lost."""
    db.execute(
        f"UPDATE files SET hash = '', size = 0, error = ?, message = 'its bytes were lost' WHERE {HERE} AND id = ?",
        (GONE, *pair(key), id),
    )


def _check(file: File, body: bytes | Path | None) -> None:
    for text in (file.id, file.name, file.mime, file.format, file.purpose, file.tool, file.preview, file.message):
        serialization.text(text, "file's fact")
    if (body is None) != (not file.hash) or bool(file.error) != (body is None):
        raise InvalidRequest("A file must have either bytes or an error.")

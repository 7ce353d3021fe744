"""Bytes of media and files: once per namespace, small ones in their row, large ones in a file that the row stands for.

A row without data whose size is not 0 has its bytes in a file.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.files import File
from agent_kernel.core.messages import Media
from agent_kernel.sessions.blob_files import PART, BlobFiles, Connection, is_whole
from agent_kernel.sessions.tables.rows import changed_rows

log = logging.getLogger(__name__)
GRACE_S = 3600.0
"""A file that no row names is left alone for this long (seconds) after it was written."""


def keep(db: sqlite3.Connection, namespace: str, media: Iterable[Media]) -> None:
    """Bytes must match their hashes. A file is on the disk before the row that names it is committed."""
    for medium in media:
        _insert(db, namespace, medium.hash, medium.mime, medium.data or b"")


def keep_file(db: sqlite3.Connection, namespace: str, file: File, body: bytes | Path) -> None:
    """``body`` must match hash and size of ``file``; of a path only the size is looked at. Raises InvalidRequest."""
    files = beside(db)
    if isinstance(body, bytes) or files is None or file.size <= files.in_row:
        data = body if isinstance(body, bytes) else body.read_bytes()
        if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.hash:
            raise InvalidRequest("A file's bytes do not match its hash and size.")
        _insert(db, namespace, file.hash, file.mime, data)
        return
    if body.stat().st_size != file.size:
        raise InvalidRequest("A file's bytes do not match its hash and size.")
    files.take(namespace, file.hash, body)
    db.execute(
        "INSERT INTO blobs (namespace, hash, mime, size, data) VALUES (?, ?, ?, ?, x'') ON CONFLICT DO NOTHING",
        (namespace, file.hash, file.mime, file.size),
    )


def of_file(db: sqlite3.Connection, namespace: str, file: File) -> bytes | Path | None:
    """Its bytes, or where they lie; None when they are missing."""
    row = db.execute("SELECT size, data FROM blobs WHERE namespace = ? AND hash = ?", (namespace, file.hash)).fetchone()
    if row is None:
        return None
    if row[1] or not row[0]:
        return bytes(row[1])
    files = beside(db)
    return files.find(namespace, file.hash, file.size) if files else None


def is_sound(db: sqlite3.Connection, namespace: str, file: File) -> bool:
    """Its bytes are there and are what was stored; reads all of them."""
    body = of_file(db, namespace, file)
    if isinstance(body, Path):
        return is_whole(body, file.hash)
    return body is not None and hashlib.sha256(body).hexdigest() == file.hash


def read(db: sqlite3.Connection, namespace: str, digest: str) -> bytes | None:
    """None when there are none, or when they are not what was stored; that is logged."""
    row = db.execute("SELECT size, data FROM blobs WHERE namespace = ? AND hash = ?", (namespace, digest)).fetchone()
    if row is None:
        return None
    size, data = row
    if data or not size:
        return bytes(data)
    files = beside(db)
    found = files.get(namespace, digest) if files else None
    if found is None:
        log.error("the bytes of medium %s are missing or damaged; agent-kernel sessions verify has more", digest)
    return found


def copy(db: sqlite3.Connection, source: str, target: str, digests: Iterable[str]) -> None:
    """Between namespaces; what is there already stays."""
    for digest in digests if source != target else ():
        row = db.execute("SELECT mime FROM blobs WHERE namespace = ? AND hash = ?", (source, digest)).fetchone()
        data = read(db, source, digest)
        if row is not None and data is not None:
            _insert(db, target, digest, row[0], data)


def forget(db: sqlite3.Connection, namespace: str, digests: Iterable[str]) -> None:
    """Those that no item or file of the namespace names any more; what is on the disk goes after the transaction
    (``sweep``)."""
    for digest in digests:
        db.execute(
            "DELETE FROM blobs WHERE namespace = :namespace AND hash = :hash"
            " AND NOT EXISTS (SELECT 1 FROM media WHERE namespace = :namespace AND hash = :hash)"
            " AND NOT EXISTS (SELECT 1 FROM files WHERE namespace = :namespace AND hash = :hash)",
            {"namespace": namespace, "hash": digest},
        )
        if changed_rows(db) and isinstance(db, Connection) and db.files:
            db.unnamed.add((namespace, digest))


def sweep(db: sqlite3.Connection) -> None:
    """Takes away the files that lost their rows. In a transaction of its own, in which nobody can be writing one."""
    if not isinstance(db, Connection) or db.files is None or not db.unnamed:
        return
    db.execute("BEGIN IMMEDIATE")
    for namespace, digest in db.unnamed:
        if not _named(db, namespace, digest):
            db.files.remove(namespace, digest)
    db.execute("COMMIT")
    db.unnamed.clear()


def collect(db: sqlite3.Connection, now: float | None = None) -> int:
    """Inside a write: takes away the files of crashed writers, GRACE_S after they were written; returns their bytes."""
    files = beside(db)
    if files is None:
        return 0
    rows = db.execute("SELECT namespace, hash FROM blobs WHERE size > 0 AND length(data) = 0")
    named = {files.place(namespace, digest) for namespace, digest in rows}
    freed = 0
    for path in files.everything():
        known = path.relative_to(files.directory).as_posix() in named and not path.name.endswith(PART)
        found = path.stat()
        if not known and found.st_mtime <= (time.time() if now is None else now) - GRACE_S:
            path.unlink(missing_ok=True)
            freed += found.st_size
    return freed


def move_out(db: sqlite3.Connection) -> int:
    """Inside a write: rows of older versions that hold too many bytes become files; returns the bytes moved."""
    files = beside(db)
    if files is None:
        return 0
    large = "SELECT namespace, hash, data FROM blobs WHERE length(data) > ? LIMIT 1"
    moved = 0
    while (row := db.execute(large, (files.in_row,)).fetchone()) is not None:
        namespace, digest, data = row
        kept = _outside(db, namespace, digest, bytes(data))
        db.execute("UPDATE blobs SET data = ? WHERE namespace = ? AND hash = ?", (kept, namespace, digest))
        moved += len(data)
    return moved


def damaged(db: sqlite3.Connection) -> list[tuple[str, str]]:
    """(namespace, hash) of those whose file is missing or is not what was stored; reads every file."""
    files = beside(db)
    rows = db.execute("SELECT namespace, hash FROM blobs WHERE size > 0 AND length(data) = 0").fetchall()
    return [(namespace, digest) for namespace, digest in rows if not (files and files.get(namespace, digest))]


def beside(db: sqlite3.Connection) -> BlobFiles | None:
    return db.files if isinstance(db, Connection) else None


def named(db: sqlite3.Connection, namespace: str, digest: str) -> bool:
    """An item or a file of the namespace names these bytes."""
    row = db.execute(
        "SELECT 1 FROM media WHERE namespace = :namespace AND hash = :hash"
        " UNION ALL SELECT 1 FROM files WHERE namespace = :namespace AND hash = :hash",
        {"namespace": namespace, "hash": digest},
    ).fetchone()
    return row is not None


def _insert(db: sqlite3.Connection, namespace: str, digest: str, mime: str, data: bytes) -> None:
    """The bytes of a file that is damaged or gone are put there again."""
    row = db.execute("SELECT length(data) FROM blobs WHERE namespace = ? AND hash = ?", (namespace, digest)).fetchone()
    if row is not None and row[0] == len(data):
        return
    kept = _outside(db, namespace, digest, data)
    db.execute(
        "INSERT INTO blobs (namespace, hash, mime, size, data) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (namespace, digest, mime, len(data), kept),
    )


def _outside(db: sqlite3.Connection, namespace: str, digest: str, data: bytes) -> bytes:
    """What is to stand in the row."""
    files = beside(db)
    if files is None or len(data) <= files.in_row:
        return data
    files.put(namespace, digest, data)
    return b""


def _named(db: sqlite3.Connection, namespace: str, digest: str) -> bool:
    row = db.execute("SELECT 1 FROM blobs WHERE namespace = ? AND hash = ?", (namespace, digest)).fetchone()
    return row is not None

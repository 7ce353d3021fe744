"""Stores the bytes of media and files, once per namespace: small ones in their row, large ones in a file.

If a row has no data although its size is not 0, its bytes are in a file.
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
from agent_kernel.sessions.blob_files import PART, BlobFiles, StoreConnection, matches_hash
from agent_kernel.sessions.tables.rows import count_changes, has_row

log = logging.getLogger(__name__)
GRACE_S = 3600.0
"""Seconds for which a file that no row refers to is kept after it was written."""


def store_media(db: sqlite3.Connection, namespace: str, media: Iterable[Media]) -> None:
    """Store the bytes of media, which must match their hashes. A file is on the disk before the row that names it is
    committed."""
    for medium in media:
        _insert(db, namespace, medium.hash, medium.mime, medium.data or b"")


def store_file(db: sqlite3.Connection, namespace: str, file: File, body: bytes | Path) -> None:
    """Store ``body``, which must match the hash and size of ``file``. Of a large file that is given as a path only the
    size is checked, because the caller has computed its hash while writing it. Raises InvalidRequest if ``body`` does
    not match."""
    files = files_of(db)
    if isinstance(body, bytes) or files is None or file.size <= files.in_row:
        data = body if isinstance(body, bytes) else body.read_bytes()
        if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.hash:
            raise InvalidRequest("A file's bytes do not match its hash and size.")
        _insert(db, namespace, file.hash, file.mime, data)
        return
    if body.stat().st_size != file.size:
        raise InvalidRequest("A file's bytes do not match its hash and size.")
    files.take(namespace, file.hash, body)
    insert_blob_row(db, namespace, file.hash, mime=file.mime, size=file.size)


def read_file_body(db: sqlite3.Connection, namespace: str, file: File) -> bytes | Path | None:
    """Return the bytes of a file or the path of its bytes, or None if they are missing."""
    data, in_file = _select_data(db, namespace, file.hash)
    files = files_of(db)
    return files.find(namespace, file.hash, file.size) if in_file and files else data


def is_intact(db: sqlite3.Connection, namespace: str, file: File) -> bool:
    """Return whether the bytes of a file are there and unchanged. All of them are read."""
    body = read_file_body(db, namespace, file)
    if isinstance(body, Path):
        return matches_hash(body, file.hash)
    return body is not None and hashlib.sha256(body).hexdigest() == file.hash


def read_medium(db: sqlite3.Connection, namespace: str, digest: str) -> bytes | None:
    """Return the bytes with this hash, or None if they are missing or damaged, which is logged."""
    data, in_file = _select_data(db, namespace, digest)
    if not in_file:
        return data
    files = files_of(db)
    content = files.get(namespace, digest) if files else None
    if content is None:
        log.error("the media file %s is missing or damaged; run agent-kernel sessions verify for details", digest)
    return content


def _select_data(db: sqlite3.Connection, namespace: str, digest: str) -> tuple[bytes | None, bool]:
    """Return (bytes in the row of a blob, whether its bytes are in a file instead). The bytes are None if they are in a
    file or there is no row."""
    row = db.execute("SELECT size, data FROM blobs WHERE namespace = ? AND hash = ?", (namespace, digest)).fetchone()
    size, data = row or (0, None)
    in_file = bool(size) and not data
    return None if in_file or data is None else bytes(data), in_file


def copy_blobs(db: sqlite3.Connection, source: str, target: str, digests: Iterable[str]) -> None:
    """Copy blobs from the namespace ``source`` to the namespace ``target``. Blobs that exist there are not replaced."""
    for digest in digests if source != target else ():
        row = db.execute("SELECT mime FROM blobs WHERE namespace = ? AND hash = ?", (source, digest)).fetchone()
        data = read_medium(db, source, digest)
        if row is not None and data is not None:
            _insert(db, target, digest, row[0], data)


def remove_unnamed(db: sqlite3.Connection, namespace: str, digests: Iterable[str]) -> None:
    """Delete the rows of those blobs among ``digests`` that no item or file of the namespace refers to. Their files are
    deleted after the transaction (``delete_unnamed_files``)."""
    for digest in digests:
        db.execute(
            "DELETE FROM blobs WHERE namespace = :namespace AND hash = :hash"
            " AND NOT EXISTS (SELECT 1 FROM media WHERE namespace = :namespace AND hash = :hash)"
            " AND NOT EXISTS (SELECT 1 FROM files WHERE namespace = :namespace AND hash = :hash)",
            {"namespace": namespace, "hash": digest},
        )
        if count_changes(db) and isinstance(db, StoreConnection) and db.files:
            # The transaction may still be rolled back, but a deleted file cannot be restored. So the file is deleted
            # only after the transaction.
            db.unnamed.add((namespace, digest))


def delete_unnamed_files(db: sqlite3.Connection) -> None:
    """Delete the blob files whose rows this connection has deleted. This runs in a write transaction of its own, so
    that no other process can write one of these files at the same time."""
    if not isinstance(db, StoreConnection) or db.files is None or not db.unnamed:
        return
    db.execute("BEGIN IMMEDIATE")
    for namespace, digest in db.unnamed:
        if not has_row(db, "SELECT 1 FROM blobs WHERE namespace = ? AND hash = ?", (namespace, digest)):
            db.files.remove(namespace, digest)
    db.execute("COMMIT")
    db.unnamed.clear()


def collect_garbage(db: sqlite3.Connection, now: float | None = None) -> int:
    """Delete files that no row refers to, left by processes that crashed, if they are older than GRACE_S. Returns the
    number of bytes freed. Must be called inside a write transaction."""
    files = files_of(db)
    if files is None:
        return 0
    rows = db.execute("SELECT namespace, hash FROM blobs WHERE size > 0 AND length(data) = 0")
    referenced = {files.relative_path(namespace, digest) for namespace, digest in rows}
    freed = 0
    for path in files.all_files():
        is_used = path.relative_to(files.directory).as_posix() in referenced and not path.name.endswith(PART)
        status = path.stat()
        if not is_used and status.st_mtime <= (time.time() if now is None else now) - GRACE_S:
            path.unlink(missing_ok=True)
            freed += status.st_size
    return freed


def move_large_rows_out(db: sqlite3.Connection) -> int:
    """Move the data of large rows into files; older versions stored all bytes in rows. Returns the number of bytes
    moved. Must be called inside a write transaction."""
    files = files_of(db)
    if files is None:
        return 0
    large = "SELECT namespace, hash, data FROM blobs WHERE length(data) > ? LIMIT 1"
    moved = 0
    while (row := db.execute(large, (files.in_row,)).fetchone()) is not None:
        namespace, digest, data = row
        stored = _store_data(db, namespace, digest, bytes(data))
        db.execute("UPDATE blobs SET data = ? WHERE namespace = ? AND hash = ?", (stored, namespace, digest))
        moved += len(data)
    return moved


def files_of(db: sqlite3.Connection) -> BlobFiles | None:
    """Return the blob files of the database, or None if everything is stored in rows."""
    return db.files if isinstance(db, StoreConnection) else None


def insert_blob_row(
    db: sqlite3.Connection, namespace: str, digest: str, *, mime: str, size: int, data: bytes = b""
) -> None:
    """Insert the row of a blob, unless it exists. An empty ``data`` means that the bytes are in a file."""
    db.execute(
        "INSERT INTO blobs (namespace, hash, mime, size, data) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (namespace, digest, mime, size, data),
    )


def is_named(db: sqlite3.Connection, namespace: str, digest: str) -> bool:
    """Return whether an item or a file of the namespace refers to the bytes with this hash."""
    return has_row(
        db,
        "SELECT 1 FROM media WHERE namespace = :namespace AND hash = :hash"
        " UNION ALL SELECT 1 FROM files WHERE namespace = :namespace AND hash = :hash",
        {"namespace": namespace, "hash": digest},
    )


def _insert(db: sqlite3.Connection, namespace: str, digest: str, mime: str, data: bytes) -> None:
    """Insert a blob. If its row exists but its file is damaged or missing, the file is written again."""
    row = db.execute("SELECT length(data) FROM blobs WHERE namespace = ? AND hash = ?", (namespace, digest)).fetchone()
    if row is not None and row[0] == len(data):
        return
    stored = _store_data(db, namespace, digest, data)
    insert_blob_row(db, namespace, digest, mime=mime, size=len(data), data=stored)


def _store_data(db: sqlite3.Connection, namespace: str, digest: str, data: bytes) -> bytes:
    """Write the bytes to a file if they are too large for a row. Returns the bytes that the row must hold: ``data``, or
    nothing if they are in a file."""
    files = files_of(db)
    if files is None or len(data) <= files.in_row:
        return data
    files.put(namespace, digest, data)
    return b""

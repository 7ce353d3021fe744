"""The file of the database: its journal, which determines how much data a power cut can destroy; opening a file that
this process cannot write; and disk space that is reserved for deletions."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from agent_kernel.core.errors import StoreError
from agent_kernel.sessions.blob_files import StoreConnection

PAGE_SIZE = 1024
"""Bytes of a page of a new file; an existing file keeps its size. A write puts whole pages into the journal, and a turn
changes a few bytes in a dozen pages of indexes. With SQLite's default page size of 4096, a turn writes three times as
much."""
CHECKPOINT_BYTES = 4 * 2**20
"""When the pages in the journal have this number of bytes, SQLite copies them to the file. SQLite's defaults give the
same number."""
WAL_SIZE_LIMIT = 64 * 2**20
"""Bytes to which SQLite truncates the -wal file after a checkpoint."""
JOURNALS = ("-wal", "-shm", "-journal")
"""Suffixes of the files beside a database that a program has open, or had open when it was killed."""
RESERVE = 2**20
"""Size of the reserve in bytes. On a small disk it is smaller: at most an eighth of the free space."""


def configure_journal(connection: sqlite3.Connection, *, shared: bool, durable: bool, wait_s: float) -> None:
    """Set journal and durability. Waits up to ``wait_s`` seconds for other programs that use the file.

    On a local disk: WAL with synchronous NORMAL (FULL if ``durable``). With NORMAL a killed process loses nothing, and
    a power cut loses at most the writes of the last moments. On a disk that several machines share (``shared``): a
    rollback journal with FULL, since WAL needs shared memory, and NORMAL is not safe with a rollback journal.
    """
    mode = "delete" if shared else "wal"
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")  # has no effect once the file has pages
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != mode:
        _switch_journal(connection, mode, wait_s)
    connection.execute(f"PRAGMA synchronous = {'FULL' if shared or durable else 'NORMAL'}")
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_BYTES // size}").fetchone()
    connection.execute(f"PRAGMA journal_size_limit = {WAL_SIZE_LIMIT}")


def _switch_journal(connection: sqlite3.Connection, mode: str, wait_s: float) -> None:
    """Change the journal mode, retrying for ``wait_s`` seconds. The change needs the file exclusively for a moment, and
    SQLite's busy timeout does not apply to it."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def is_read_only(path: Path) -> bool:
    """Return whether there is a database at ``path`` that this process cannot write."""
    try:
        size = path.stat().st_size
    except OSError:
        return False
    return size > 0 and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def connect_read_only(path: Path, name: str) -> StoreConnection:
    """Open the database for reading, such as a backup, a snapshot, or a file on a disk that the system has made
    read-only after an error. SQLite would create a file beside it, unless the database is declared immutable,
    and then it ignores the journal. So this raises StoreError if there is a journal."""
    journals = [path.name + suffix for suffix in JOURNALS if path.with_name(path.name + suffix).exists()]
    if journals:
        raise StoreError(
            f"{name} cannot be written, and {journals[0]} beside it may hold the last changes.",
            hint=f"Copy {path.parent} to a disk that can be written, and name the copy with --data-dir.",
        )
    uri = f"{path.as_uri()}?mode=ro&immutable=1"
    return sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=256, factory=StoreConnection)


class DiskReserve:
    """A file of zeros beside ``path``. When the disk is full, its space can be released for deletions: a DELETE needs
    journal space before it frees any."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}.reserve")

    def make(self) -> None:
        """Allocate the reserve, as large as the free space permits. Failures are ignored."""
        with suppress(OSError):
            size = min(RESERVE, shutil.disk_usage(self._path.parent).free // 8)
            file = os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                if size > os.fstat(file).st_size:
                    os.posix_fallocate(file, 0, size)
            finally:
                os.close(file)

    def spend(self) -> bool:
        """Release the reserved space to the disk. Returns False if there was none."""
        try:
            size = self._path.stat().st_size
            os.truncate(self._path, 0)
        except OSError:
            return False
        return size > 0

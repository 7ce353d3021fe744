"""Sets the journal mode of a SQLite file, which determines how much data a power cut can destroy."""

from __future__ import annotations

import sqlite3
import time

PAGE_SIZE = 1024
"""Bytes of a page of a new file; an existing file keeps its size. A write puts whole pages into the journal, and a turn
changes a few bytes in a dozen pages of indexes. With SQLite's default page size of 4096, a turn writes three times as
much."""
CHECKPOINT_BYTES = 4 * 2**20
"""When the pages in the journal have this number of bytes, SQLite copies them to the file. SQLite's defaults give the
same number."""
WAL_SIZE_LIMIT = 64 * 2**20
"""Bytes to which SQLite truncates the -wal file after a checkpoint."""


def configure(connection: sqlite3.Connection, *, shared: bool, durable: bool, wait_s: float) -> None:
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

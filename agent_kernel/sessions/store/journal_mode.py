"""The journal of a SQLite file, and what a power cut may take from it."""

from __future__ import annotations

import sqlite3
import time

WAL_SIZE_LIMIT = 64 * 2**20
"""Bytes to which SQLite truncates the -wal file after a checkpoint."""


def configure(connection: sqlite3.Connection, *, shared: bool, durable: bool, wait_s: float) -> None:
    """Set journal and durability. Waits up to ``wait_s`` seconds for other programs that use the file.

    On a local disk: WAL with synchronous NORMAL (FULL if ``durable``). With NORMAL a killed process loses nothing, and
    a power cut loses at most the writes of the last moments. On a disk that several machines share (``shared``): a
    rollback journal with FULL, since WAL needs shared memory, and NORMAL is not safe with a rollback journal.
    """
    wanted = "delete" if shared else "wal"
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
        _switch_journal(connection, wanted, wait_s)
    connection.execute(f"PRAGMA synchronous = {'FULL' if shared or durable else 'NORMAL'}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_SIZE_LIMIT}")


def _switch_journal(connection: sqlite3.Connection, wanted: str, wait_s: float) -> None:
    """Change the journal mode, retrying for ``wait_s`` seconds. The change needs the file exclusively for a moment, and
    SQLite's busy timeout does not apply to it."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)

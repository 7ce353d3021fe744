"""Opens a SQLite file that this process cannot write, such as a backup, a snapshot, or a disk that the system has made
read-only after an error."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from agent_kernel.core.errors import StoreError
from agent_kernel.sessions.blob_files import StoreConnection

JOURNALS = ("-wal", "-shm", "-journal")
"""Suffixes of the files beside a database that a program has open, or had open when it was killed."""


def is_read_only(path: Path) -> bool:
    """Return whether there is a database at ``path`` that this process cannot write."""
    try:
        size = path.stat().st_size
    except OSError:
        return False
    return size > 0 and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def connect(path: Path, name: str) -> StoreConnection:
    """Open the database for reading. SQLite would create a file beside it, unless the database is declared immutable,
    and then it ignores the journal. So this raises StoreError if there is a journal."""
    journals = [path.name + suffix for suffix in JOURNALS if path.with_name(path.name + suffix).exists()]
    if journals:
        raise StoreError(
            f"{name} cannot be written, and {journals[0]} beside it may hold the last changes.",
            hint=f"Copy {path.parent} to a disk that can be written, and name the copy with --data-dir.",
        )
    uri = f"{path.as_uri()}?mode=ro&immutable=1"
    return sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=256, factory=StoreConnection)

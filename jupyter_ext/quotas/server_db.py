"""Opens the database for data that outlives this server but belongs to no session: tokens spent and idempotency keys.
Servers that share a data directory share it."""

from __future__ import annotations

from pathlib import Path

from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.store.schema_migration import migration_scripts


def open_server_db(path: Path | None) -> Database:
    """Return the database at ``path``, in memory for None. The file is opened at first use."""
    return Database(path, migration_scripts("jupyter_ext.quotas"), name=str(path or "The record of requests"))

"""Opens the database for data that outlives this server but belongs to no session: tokens spent and idempotency keys.
Servers that share a data directory share it."""

from __future__ import annotations

from pathlib import Path

from agent_kernel.sessions.store.database import Database

SPENT = """
CREATE TABLE spent (
    user TEXT NOT NULL,
    token TEXT NOT NULL,
    minute INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    PRIMARY KEY (user, token, minute)
) WITHOUT ROWID;
"""
ANSWERED = """
CREATE TABLE answered (
    user TEXT NOT NULL,
    subject TEXT NOT NULL,
    key TEXT NOT NULL,
    request TEXT NOT NULL,
    turn TEXT NOT NULL,
    session TEXT NOT NULL,
    facts TEXT NOT NULL,
    began REAL NOT NULL,
    PRIMARY KEY (user, subject, key)
) WITHOUT ROWID;
CREATE INDEX answered_began ON answered (user, began);
"""
STEPS = (SPENT, ANSWERED)


def open_server_db(path: Path | None) -> Database:
    """Return the database at ``path``, in memory for None. The file is opened at first use."""
    return Database(path, STEPS, name=str(path or "The record of requests"))

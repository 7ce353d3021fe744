"""The small file of what outlives this server beside the sessions: tokens spent, and requests that were answered under
a key. Servers that share a data directory share it."""

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


def records(path: Path | None) -> Database:
    """``path`` None: in memory. Opened at its first use."""
    return Database(path, STEPS, name=str(path or "The record of requests"))

"""Names the tables of a store that the servers of a shared log have in common, and the columns that identify their
rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

LOCAL = frozenset({"bytes", "folded"})
"""Columns of ``sessions`` that are not shared, because every server computes them for its copy: the bytes that count
towards the quota, and the progress of the search index."""
KEYS: Mapping[str, tuple[str, ...]] = {
    "sessions": ("namespace", "id"),
    "turns": ("namespace", "session", "id"),
    "items": ("namespace", "session", "segment", "seq"),
    "media": ("namespace", "session", "hash", "seq"),
    "segments": ("namespace", "session", "id"),
    "branches": ("namespace", "session", "name"),
    "dropped_branches": ("namespace", "session", "name"),
    "summaries": ("namespace", "session", "segment", "last", "time"),
    "summary_claims": ("namespace", "session"),
    "openings": ("namespace", "scope", "hash", "session", "seq"),
    "files": ("namespace", "session", "id"),
    "grants": ("namespace", "session", "kind", "tool"),
    "questions": ("namespace", "id"),
    "quarantine": ("namespace", "session", "origin", "row", "time"),
    "bindings": ("namespace", "root", "path"),
}
"""The tables that are shared, each with the columns that identify a row in every copy. Numbers that SQLite assigns (the
ids of ``summaries`` and ``quarantine``) differ between copies and are not shared."""
SESSION_TABLES = tuple(table for table in KEYS if table != "bindings")
"""The tables with rows of a session. ``sessions`` comes first, since triggers add the bytes of the other rows to its
row."""
NUMBERED = frozenset({"summaries", "quarantine"})
UNSHARED = frozenset({"blobs", "search_places", "search_texts", "search_unindexed", "search_chores"})
"""The tables that are not shared: the search index, and the table of bytes, whose rows can be derived from those of
``media`` and ``files``."""
WITHOUT_ROWID = frozenset(
    {"media", "segments", "dropped_branches", "summary_claims", "openings", "grants", "questions"}
)


def session_column(table: str) -> str:
    """Return the column of a table in SESSION_TABLES that has the id of the session."""
    return "id" if table == "sessions" else "session"


def shared_columns(db: sqlite3.Connection, table: str) -> list[str]:
    """Return the columns of a table that are the same in every copy."""
    names = [name for _, name, *_ in db.execute(f"PRAGMA main.table_info({table})")]
    hidden = {*LOCAL} if table == "sessions" else {"id"} if table in NUMBERED else set()
    return [name for name in names if name not in hidden]

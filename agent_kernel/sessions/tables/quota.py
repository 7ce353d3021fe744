"""Limits of a namespace. When a limit is reached, new sessions and turns are refused; stored data stays, and a running
turn can still end."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from agent_kernel.core.errors import QuotaExceeded
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.tables.rows import has_row, pair

FRESH_S = 10.0
"""Seconds for which a count is reused if it is more than FAR_SESSIONS and FAR_BYTES below the quota. One machine cannot
write that much in this time (measured: 1,900 sessions/s, 40 MB/s)."""
FAR_SESSIONS = 20_000
FAR_BYTES = 2**30
IS_STORED = "SELECT 1 FROM sessions WHERE namespace = ? AND id = ?"


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of one namespace; 0 means no limit. ``bytes`` counts messages, the media to which they refer, and the
    files of sessions. Media or files that are referred to twice count twice."""

    sessions: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class _CountedUsage:
    sessions: int
    bytes: int
    at: float


class QuotaGuard:
    """Checks the quota of one store. Used on the store's thread."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._held: dict[str, _CountedUsage] = {}

    def check(self, db: sqlite3.Connection, key: SessionKey, now: float, added_bytes: int = 0) -> None:
        """Check the quota before the session ``key`` or a turn of it is created, or before ``added_bytes`` bytes of
        files are stored. Raises QuotaExceeded."""
        quota = self._quota
        if not quota.sessions and not quota.bytes:
            return
        held = self._holds(db, key.namespace, now, added_bytes)
        if quota.bytes and (held.bytes >= quota.bytes or held.bytes + added_bytes > quota.bytes):
            raise _quota_error(f"{quota.bytes / 2**30:g} GiB of messages, media and files", "quota_gb", held)
        if quota.sessions and held.sessions >= quota.sessions and not has_row(db, IS_STORED, pair(key)):
            raise _quota_error(f"{quota.sessions} sessions", "quota_sessions", held)

    def _holds(self, db: sqlite3.Connection, namespace: str, now: float, added_bytes: int) -> _CountedUsage:
        quota, held = self._quota, self._held.get(namespace)
        fresh = held is not None and 0 <= now - held.at < FRESH_S and not added_bytes
        if held is not None and fresh:
            far_sessions = not quota.sessions or quota.sessions - held.sessions > FAR_SESSIONS
            if far_sessions and (not quota.bytes or quota.bytes - held.bytes > FAR_BYTES):
                return held
        row = db.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM sessions WHERE namespace = ?", (namespace,))
        sessions, size = row.fetchone()
        held = self._held[namespace] = _CountedUsage(sessions, size, now)
        return held


def _quota_error(resource: str, setting: str, usage: _CountedUsage) -> QuotaExceeded:
    return QuotaExceeded(
        f"The limit of {resource} is reached.",
        hint=f"Delete sessions (agent-kernel sessions delete, or expire), or increase the setting {setting}.",
        details={"sessions": usage.sessions, "bytes": usage.bytes},
    )

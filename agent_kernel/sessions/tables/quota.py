"""How much a namespace may hold. It refuses what is new; what is there stays, and a turn that runs can end."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from agent_kernel.core.errors import QuotaExceeded
from agent_kernel.core.session import SessionKey

FRESH_S = 10.0
"""So long what was counted is taken for granted, if it is far from the quota: by more than these, which nobody makes in
this time on one machine (measured: 1,900 sessions/s, 40 MB/s)."""
FAR_SESSIONS = 20_000
FAR_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Quota:
    """Of one namespace; 0 is none. ``bytes`` are those of messages, of the media that they name and of the files that
    sessions have, each time."""

    sessions: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Held:
    sessions: int
    bytes: int
    at: float


class Guard:
    """One store's; used on its thread."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._held: dict[str, _Held] = {}

    def check(self, db: sqlite3.Connection, key: SessionKey, now: float, more: int = 0) -> None:
        """Before a session, or a turn of it, is made, or ``more`` bytes of files are kept. Raises QuotaExceeded."""
        quota = self._quota
        if not quota.sessions and not quota.bytes:
            return
        held = self._holds(db, key.namespace, now, more)
        if quota.bytes and (held.bytes >= quota.bytes or held.bytes + more > quota.bytes):
            raise _exceeded(f"{quota.bytes / 2**30:g} GiB of messages, media and files", "quota_gb", held)
        if quota.sessions and held.sessions >= quota.sessions and not _exists(db, key):
            raise _exceeded(f"{quota.sessions} sessions", "quota_sessions", held)

    def _holds(self, db: sqlite3.Connection, namespace: str, now: float, more: int) -> _Held:
        quota, held = self._quota, self._held.get(namespace)
        fresh = held is not None and 0 <= now - held.at < FRESH_S and not more
        if held is not None and fresh:
            far_sessions = not quota.sessions or quota.sessions - held.sessions > FAR_SESSIONS
            if far_sessions and (not quota.bytes or quota.bytes - held.bytes > FAR_BYTES):
                return held
        row = db.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM sessions WHERE namespace = ?", (namespace,))
        sessions, size = row.fetchone()
        held = self._held[namespace] = _Held(sessions, size, now)
        return held


def _exists(db: sqlite3.Connection, key: SessionKey) -> bool:
    row = db.execute("SELECT 1 FROM sessions WHERE namespace = ? AND id = ?", (key.namespace, key.id)).fetchone()
    return row is not None


def _exceeded(what: str, setting: str, held: _Held) -> QuotaExceeded:
    return QuotaExceeded(
        f"{what} are stored here, as many as may be.",
        hint=f"Delete some (agent-kernel sessions expire, delete), or raise {setting}.",
        details={"sessions": held.sessions, "bytes": held.bytes},
    )

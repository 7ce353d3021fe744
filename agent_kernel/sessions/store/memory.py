"""The session store that forgets: for tests, and for sessions that must leave no trace."""

from __future__ import annotations

import time
from collections.abc import Callable

from agent_kernel.sessions.store.sqlite import NONE, SqliteStore
from agent_kernel.sessions.tables.quota import Quota


class MemoryStore(SqliteStore):
    """What a SqliteStore does, in a database of this process that is gone when the store is closed."""

    def __init__(self, *, quota: Quota = NONE, clock: Callable[[], float] = time.time) -> None:
        super().__init__(None, quota=quota, clock=clock)

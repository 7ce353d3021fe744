"""A session store in memory, for tests and for sessions that must leave no trace."""

from __future__ import annotations

import time
from collections.abc import Callable

from agent_kernel.sessions.store.sqlite import NONE, SqliteStore
from agent_kernel.sessions.tables.quota import Quota


class MemoryStore(SqliteStore):
    """A SqliteStore whose database is in this process's memory. Closing the store deletes it."""

    def __init__(self, *, quota: Quota = NONE, clock: Callable[[], float] = time.time) -> None:
        super().__init__(None, quota=quota, clock=clock)

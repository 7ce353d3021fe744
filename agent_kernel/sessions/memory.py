"""The session store that forgets: for tests, and for sessions that must leave no trace."""

from __future__ import annotations

import time
from collections.abc import Callable

from agent_kernel.sessions.sqlite import SqliteStore


class MemoryStore(SqliteStore):
    """What a SqliteStore does, in a database of this process that is gone when the store is closed."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(None, clock=clock)

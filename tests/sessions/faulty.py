"""A store whose n-th call fails, before or after its work is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from agent_kernel.core.errors import StoreError
from agent_kernel.core.seams.session_store import SessionStore

When = Literal["before", "after"]


class FaultyStore:
    """Wraps another store and counts its calls from 1. ``fails(number, method)`` returns when the call fails,
    or None.
    """

    def __init__(self, store: SessionStore, fails: Callable[[int, str], When | None]) -> None:
        self._store = store
        self._fails = fails
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            when = self._fails(len(self.calls), name)
            if when == "before":
                raise StoreError("disk I/O error")
            result = await method(*arguments, **options)
            if when == "after":
                raise StoreError("disk I/O error")
            return result

        return call

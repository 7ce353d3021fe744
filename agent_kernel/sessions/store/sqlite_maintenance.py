"""Maintains a SQLite file of sessions: its search index, checks, repairs, and free space."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from agent_kernel.core.session import NotebookBinding, StoreFault
from agent_kernel.sessions import serialization
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.tables import blobs, maintenance, search_texts
from agent_kernel.sessions.tables import repair as mending


class SqliteMaintenance:
    """The maintenance of a SqliteStore, of which it is a base class. The methods concern one namespace or all of
    them."""

    _database: Database
    _clock: Callable[[], float]

    async def fold(self, limit: int = 1000) -> int:
        """Add up to ``limit`` new items to the search index, in several short transactions, so that turns do not have
        to wait. Returns how many items are left to add."""
        serialization.validate_limit(limit)
        while limit > 0 and await self._database.read(search_texts.has_work):
            limit -= await self._database.write(functools.partial(search_texts.fold, limit=limit))
        return await self._database.read(search_texts.count_left)

    async def verify(self, namespace: str | None = None) -> list[StoreFault]:
        """Return the faults of the store, without changing anything."""
        return await self._database.read(lambda db: mending.verify(db, namespace))

    async def repair(self, namespace: str | None = None) -> list[StoreFault]:
        """Repair the faults that can be repaired, move the others to the quarantine, and return all of them."""
        return await self._database.write(lambda db: mending.repair(db, namespace, self._clock()))

    async def stats(self, namespace: str | None = None) -> Mapping[str, Any]:
        """Return the numbers of sessions, items and bytes of the store."""
        return await self._database.read(lambda db: maintenance.read_stats(db, namespace))

    async def bindings(self, namespace: str | None = None) -> list[NotebookBinding]:
        """Return which notebook is bound to which session."""
        return await self._database.read(lambda db: maintenance.select_bindings(db, namespace))

    async def forget_set_aside(self, namespace: str | None = None) -> None:
        """Delete the rows that ``repair`` has moved to the quarantine."""
        await self._database.write(lambda db: maintenance.delete_set_aside(db, namespace), frees=True)

    async def vacuum(self) -> int:
        """Delete files that nothing refers to, and rewrite the database without its free pages. Returns the number of
        bytes freed."""
        while await self.fold():
            pass
        await self._database.write(blobs.move_large_rows_out)
        freed = await self._database.write(blobs.collect_garbage, frees=True)
        return freed + await self._database.run_outside_transaction(maintenance.vacuum)

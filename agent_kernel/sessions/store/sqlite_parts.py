"""Base classes of SqliteStore: the files of sessions, permission grants and approval questions, and the maintenance of
the SQLite file."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_kernel.core.approval import ApprovalQuestion, Grant
from agent_kernel.core.files import File
from agent_kernel.core.session import NotebookBinding, SessionKey, StoreFault
from agent_kernel.sessions import serialization
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.tables import blobs, files, grants, maintenance, search_texts
from agent_kernel.sessions.tables import repair as mending
from agent_kernel.sessions.tables.quota import QuotaGuard


class SqliteFiles:
    """Implements the interface SessionFiles; base class of SqliteStore. New files count towards the quota."""

    _database: Database
    _guard: QuotaGuard
    _clock: Callable[[], float]

    async def add_files(self, key: SessionKey, new: Sequence[tuple[File, bytes | Path | None]]) -> None:
        batch = tuple(new)
        size = sum(file.size for file, _ in batch)

        def work(db: sqlite3.Connection) -> None:
            self._guard.check(db, key, self._clock(), size)
            files.store_files(db, key, batch, self._clock())

        await self._database.write(work, key.namespace)

    async def file(self, key: SessionKey, id: str) -> File | None:
        return await self._database.read(lambda db: files.select_file(db, key, id), key.namespace)

    async def files(self, key: SessionKey) -> list[File]:
        return await self._database.read(lambda db: files.select_files(db, key), key.namespace)

    async def file_body(self, key: SessionKey, id: str) -> bytes | Path | None:
        return await self._database.read(lambda db: files.read_body(db, key, id), key.namespace)

    async def remove_file(self, key: SessionKey, id: str) -> bool:
        return await self._database.write(
            lambda db: files.delete_file(db, key, id, self._clock()), key.namespace, frees=True
        )

    async def sessions_of_file(self, namespace: str, id: str) -> list[SessionKey]:
        return await self._database.read(lambda db: files.select_owners(db, namespace, id), namespace)

    async def all_files(
        self, namespace: str, *, sessions: Collection[str] | None = None
    ) -> list[tuple[SessionKey, File]]:
        return await self._database.read(lambda db: files.select_namespace_files(db, namespace, sessions), namespace)


class SqliteGrants:
    """Implements the interface Grants; base class of SqliteStore."""

    _database: Database

    async def grants(self, key: SessionKey) -> list[Grant]:
        return await self._database.read(lambda db: grants.select_grants(db, key), key.namespace)

    async def grant(self, key: SessionKey, grant: Grant) -> None:
        await self._database.write(lambda db: grants.insert_grant(db, key, grant), key.namespace)

    async def revoke(self, key: SessionKey, kind: str | None = None, tool: str | None = None) -> int:
        return await self._database.write(lambda db: grants.delete_grants(db, key, kind, tool), key.namespace)

    async def ask(self, question: ApprovalQuestion) -> None:
        await self._database.write(lambda db: grants.insert_question(db, question), question.key.namespace)

    async def answer(self, question: ApprovalQuestion, grant: Grant | None = None) -> ApprovalQuestion:
        serialization.text(question.message, "message")
        return await self._database.write(lambda db: grants.store_answer(db, question, grant), question.key.namespace)

    async def question(self, namespace: str, id: str) -> ApprovalQuestion | None:
        return await self._database.read(lambda db: grants.select_question(db, namespace, id), namespace)


class SqliteMaintenance:
    """Implements the maintenance of a SqliteStore; base class of SqliteStore. The methods apply to one namespace, or to
    all namespaces if ``namespace`` is None."""

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
        """Repair the faults that can be repaired, move other faulty rows to the table ``quarantine``, and return all
        faults."""
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

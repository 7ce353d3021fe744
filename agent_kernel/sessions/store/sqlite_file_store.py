"""Stores the files of sessions in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from agent_kernel.core.files import File
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions import serialization
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.tables import files
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
        self, namespace: str, limit: int | None = None, *, sessions: Collection[str] | None = None
    ) -> list[tuple[SessionKey, File]]:
        serialization.validate_limit(limit)
        return await self._database.read(
            lambda db: files.select_namespace_files(db, namespace, sessions, limit), namespace
        )

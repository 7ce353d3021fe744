"""Stores permission grants and approval questions in a SQLite file."""

from __future__ import annotations

from agent_kernel.core.approval import ApprovalQuestion, Grant
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions import serialization
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.tables import grants


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

"""Defines the part of a session store that stores permission decisions. The rules of ``session_store.py`` about
operations apply here too."""

from __future__ import annotations

from typing import Protocol

from agent_kernel.core.approval import ApprovalQuestion, Grant
from agent_kernel.core.session import SessionKey


class Grants(Protocol):
    """The interface for decisions of people about calls.

    Decisions are deleted when their session is deleted or cleared. Exports, forks and copies do not contain them. A
    custom store may leave this part out; decisions then last as long as the server's process.
    """

    async def grants(self, key: SessionKey) -> list[Grant]:
        """Return the grants of a session; empty for an unknown session."""

    async def grant(self, key: SessionKey, grant: Grant) -> None:
        """Store a grant. It replaces a grant with the same kind and tool. Raises SessionNotFound."""

    async def revoke(self, key: SessionKey, kind: str | None = None, tool: str | None = None) -> int:
        """Delete the grants of this kind and tool (None: any) and return how many there were."""

    async def ask(self, question: ApprovalQuestion) -> None:
        """Store an open question. Raises SessionNotFound.

        ``close_turn`` closes the open questions of its turn. If the turn was interrupted, their outcome is
        ``interrupted``, and the result of the call says that the question was not answered. Otherwise their outcome is
        ``cancelled``.
        """

    async def answer(self, question: ApprovalQuestion, grant: Grant | None = None) -> ApprovalQuestion:
        """Store the answer and its grant in one transaction, and return the question as it is stored now. If the
        question is already answered, nothing is stored: only the first answer counts."""

    async def question(self, namespace: str, id: str) -> ApprovalQuestion | None: ...

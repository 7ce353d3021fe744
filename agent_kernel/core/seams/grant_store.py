"""The part of a session store that holds permission decisions. The rules of ``session_store.py`` apply here too."""

from __future__ import annotations

from typing import Protocol

from agent_kernel.core.approval import ApprovalQuestion, Grant
from agent_kernel.core.session import SessionKey


class Grants(Protocol):
    """Decisions of people about calls.

    They are deleted with their session and when it is cleared, and are part of no export, fork or copy. A custom store
    may leave this part out; decisions then last as long as the server's process.
    """

    async def grants(self, key: SessionKey) -> list[Grant]:
        """Return the grants for the rest of a session; none for an unknown session."""

    async def grant(self, key: SessionKey, grant: Grant) -> None:
        """Store a grant; it replaces the one of the same kind and tool. Raises SessionNotFound."""

    async def revoke(self, key: SessionKey, kind: str | None = None, tool: str | None = None) -> int:
        """Delete the grants of this kind and tool (None: any) and return how many there were."""

    async def ask(self, question: ApprovalQuestion) -> None:
        """Store an open question. Raises SessionNotFound.

        ``close_turn`` ends the open questions of its turn: as ``interrupted`` if the turn was interrupted, and the
        result of the call then says that the question was not answered; otherwise as ``cancelled``.
        """

    async def answer(self, question: ApprovalQuestion, grant: Grant | None = None) -> ApprovalQuestion:
        """Store the answer and its grant in one transaction, and return the question as it is stored now. Only the
        first answer counts."""

    async def question(self, namespace: str, id: str) -> ApprovalQuestion | None: ...

"""The part of a session store that keeps decisions; what ``sessions/store.py`` says of operations holds here too."""

from __future__ import annotations

from typing import Protocol

from agent_kernel.core.permission_grant import ApprovalQuestion, Grant
from agent_kernel.core.session import SessionKey


class Grants(Protocol):
    """What people decided about calls. It goes with its session, when that is deleted or cleared, and is in no export,
    fork or copy. A store of one's own may leave it out: then it lasts as long as the server's process."""

    async def grants(self, key: SessionKey) -> list[Grant]:
        """For the rest of the session; none of an unknown one."""
        ...

    async def grant(self, key: SessionKey, grant: Grant) -> None:
        """Replaces the one of the same kind and tool. Raises SessionNotFound."""
        ...

    async def revoke(self, key: SessionKey, kind: str | None = None, tool: str | None = None) -> int:
        """Takes back those of this kind and tool (None: all); how many there were."""
        ...

    async def ask(self, question: ApprovalQuestion) -> None:
        """Keeps a question that waits. ``close_turn`` ends those of its turn: as ``interrupted`` with the turn, and the
        call's result then says that the question was not answered; else as ``cancelled``. Raises SessionNotFound."""
        ...

    async def answer(self, question: ApprovalQuestion, grant: Grant | None = None) -> ApprovalQuestion:
        """The first answer counts, with its grant, in one transaction: the question as it is kept now is returned."""
        ...

    async def question(self, namespace: str, id: str) -> ApprovalQuestion | None: ...

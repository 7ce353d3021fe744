"""What people decide about calls: one question and its answer, and what was decided for the rest of a session."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from agent_kernel.core.session import SessionKey

Decision: TypeAlias = Literal["approve", "deny"]
Remember: TypeAlias = Literal["once", "session", "folder", "never"]
ApprovalOutcome: TypeAlias = Literal["waiting", "approve", "deny", "cancelled", "interrupted"]
UNANSWERED = "not run: the server stopped while this waited for an answer"
"""What a model reads of a call whose question died with its server."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Calls of ``tool``, of this ``kind``, run without a question, or never (``deny``). Of the kind ``path`` the tool
    is what may be opened: ``read:PATH`` or ``write:PATH``."""

    kind: str
    tool: str
    decision: Decision
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """One call that a person is asked about. ``shown`` is the hash of what they see. ``waiting`` until it has another
    outcome: an answer, or ``cancelled`` and ``interrupted`` with its turn. ``message`` was said with the answer."""

    id: str
    key: SessionKey
    turn: str
    call: str
    kind: str
    tool: str
    shown: str
    outcome: ApprovalOutcome = "waiting"
    remember: Remember = "once"
    message: str = ""
    asked: float = field(default_factory=time.time)
    answered: float | None = None

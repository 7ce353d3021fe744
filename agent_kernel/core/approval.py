"""Decisions of people about calls: one question with its answer, and decisions for the rest of a session."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from agent_kernel.core.session import SessionKey

Decision: TypeAlias = Literal["approve", "deny"]
Remember: TypeAlias = Literal["once", "session", "folder", "never"]
ApprovalOutcome: TypeAlias = Literal["waiting", "approve", "deny", "cancelled", "interrupted"]
UNANSWERED = "not run: the server stopped while this waited for an answer"
"""Text that the model reads for a call whose question was open when the server stopped."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A stored decision of a user: calls of ``tool`` that are of this ``kind`` run without asking the user again, or,
    with the decision ``deny``, never run.

    With the kind ``path``, ``tool`` names a path instead of a tool: ``read:PATH`` or ``write:PATH``.
    """

    kind: str
    tool: str
    decision: Decision
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """One call that a person is asked about.

    ``shown`` is the hash of what the person sees. ``outcome`` is ``waiting`` until the question is answered, or
    ``cancelled`` or ``interrupted`` together with its turn. ``message`` is the person's comment on the answer.
    """

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

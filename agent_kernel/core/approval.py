"""Defines decisions of people about tool calls: a question about one call with its answer, and a grant, which is a
decision for the rest of a session."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from agent_kernel.core.session import SessionKey

Decision: TypeAlias = Literal["approve", "deny"]
Remember: TypeAlias = Literal["once", "session", "folder", "never"]
ApprovalOutcome: TypeAlias = Literal["waiting", "approve", "deny", "cancelled", "interrupted"]
UNANSWERED = "not run: the server stopped while this waited for an answer"
"""The result that the model reads for a call if the server stopped while the call waited for a person's answer."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A stored decision of a user for the rest of a session: calls of ``tool`` that have this ``kind`` run without
    asking the user again. With the decision ``deny`` they never run.

    With the kind ``path``, ``tool`` names a path instead of a tool: ``read:PATH`` or ``write:PATH``.
    """

    kind: str
    tool: str
    decision: Decision
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """A question to a person: may this tool call run?

    ``shown`` is the hash of what the person sees. ``outcome`` is ``waiting`` until the question is answered. If the
    turn ends first, it becomes ``cancelled`` or ``interrupted``. ``message`` is the person's comment on the answer.
    ``edited`` is the SHA-256 in hex of the text that the person wrote in place of the proposed one; empty if they
    changed nothing.
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
    edited: str = ""

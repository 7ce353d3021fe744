"""The one gate every call passes: auto, ask or deny, the stricter of server and request; and who answers an ask.

A client says in its request which kinds it can have answered (``answers``): a person at the notebook can answer all,
a notebook that ran ``%agent allow live`` answers ``python.live``, a headless client none. An ask that nobody can answer
is denied at once, with that reason.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from agent_kernel.errors import NotFound
from agent_kernel.events import ApprovalRequired, ApprovalResolved, Emit
from agent_kernel.messages import ToolCall
from agent_kernel.protocols import ToolContext, ToolSpec
from agent_kernel.settings import Permission

STRICTNESS: tuple[Permission, ...] = ("auto", "ask", "deny")

DEFAULTS: Mapping[str, Permission] = MappingProxyType(
    {
        "python.sandbox": "auto",
        "python.draft": "auto",
        "shell": "auto",
        "files.read": "auto",
        "sessions.read": "auto",
        "notebook.read": "auto",
        "python.live": "ask",
        "notebook.edit": "ask",
        "notebook.run": "ask",
        "mcp": "ask",
        "dispatch": "ask",
        "function": "auto",
        "function.effects": "ask",
        "web": "ask",
    }
)
"""By kind of tool; a kind that is not listed asks."""


def strictest(*permissions: Permission) -> Permission:
    return max(permissions, key=STRICTNESS.index)


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    reason: str


@dataclass(slots=True)
class Pending:
    turn: str
    verdict: asyncio.Future[Verdict]


@dataclass(slots=True)
class Approvals:
    """Asks that wait for a person. An approval is answered once; its id is a secret that only its event carries."""

    pending: dict[str, Pending] = field(default_factory=dict)

    async def ask(self, turn: str, spec: ToolSpec, call: ToolCall, emit: Emit) -> Verdict:
        approval = f"appr_{secrets.token_hex(16)}"
        self.pending[approval] = Pending(turn, asyncio.get_running_loop().create_future())
        emit(ApprovalRequired(approval, call.id, call.name, spec.kind, spec.where, shown_code(call)))
        try:
            verdict = await self.pending[approval].verdict
        except asyncio.CancelledError:
            emit(ApprovalResolved(approval, call.id, "cancelled", "the turn was stopped"))
            raise
        finally:
            del self.pending[approval]
        emit(ApprovalResolved(approval, call.id, "approve" if verdict.allowed else "deny", verdict.reason))
        return verdict

    def turn_of(self, approval: str) -> str:
        """Raises NotFound when it is unknown or was answered."""
        pending = self.pending.get(approval)
        if pending is None or pending.verdict.done():
            raise NotFound("This approval is unknown or was answered already.")
        return pending.turn

    def resolve(self, approval: str, decision: Literal["approve", "deny"], reason: str = "") -> None:
        """Raises NotFound when it is unknown or was answered."""
        self.turn_of(approval)
        allowed = decision == "approve"
        self.pending[approval].verdict.set_result(Verdict(allowed, reason or ("approved" if allowed else "denied")))


@dataclass(frozen=True, slots=True)
class Gate:
    """Decides for one turn. ``policy`` overrides DEFAULTS by kind; ``server`` and ``request`` apply to every kind."""

    approvals: Approvals
    server: Permission = "auto"
    request: Permission = "auto"
    answers: frozenset[str] = frozenset()
    policy: Mapping[str, Permission] = field(default_factory=lambda: DEFAULTS)

    async def decide(self, spec: ToolSpec, context: ToolContext) -> Verdict:
        permission = strictest(self.policy.get(spec.kind, "ask"), self.server, self.request)
        if permission == "auto":
            return Verdict(True, "allowed by the defaults")
        if permission == "deny":
            return Verdict(False, f"{spec.name} was denied by policy")
        if not self.answers & {spec.kind, "*"}:
            return Verdict(False, f"{spec.name} ({spec.where}) needs a person's yes, and nobody can answer here")
        return await self.approvals.ask(context.turn, spec, context.call, context.emit)


def shown_code(call: ToolCall) -> str:
    """Exactly what will run, for a person to read."""
    code = call.arguments.get("code")
    if isinstance(code, str):
        return code
    return "\n".join(f"{name} = {value!r}" for name, value in call.arguments.items())

"""The gate that every call passes on every route: allow, deny, or ask.

A client declares in its request for which kinds of calls it can obtain an answer (``answers``): ``*`` (all) if a user
is at the notebook, ``python.live`` if the notebook ran ``%agent allow live``, none for a headless client. A call that
requires an answer which nobody can give is denied at once, with that reason.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from agent_kernel.core.approval import ApprovalQuestion, Decision, Grant
from agent_kernel.core.errors import StoreError
from agent_kernel.core.events import ApprovalRequired, EventBody
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import ToolContext, ToolSpec
from agent_kernel.core.settings import Permission
from agent_kernel.permissions.admin_policy import NO_ADMIN_POLICY, AdminPolicy
from agent_kernel.permissions.approval_answer import Answer, Verdict, hash_shown_call
from agent_kernel.permissions.approvals import Approvals
from agent_kernel.permissions.policy import EDIT, LIVE, Policy, Ruling

log = logging.getLogger(__name__)
Asker: TypeAlias = Callable[[ApprovalRequired], "bool | Answer | Awaitable[bool | Answer]"]
"""Answers in place of a person with True, False or an Answer; may be a coroutine function."""
NEVER = "the person does not want to be asked for it again in this session"


@dataclass(frozen=True, slots=True)
class Gate:
    """Decides for the turns of one request, or of one in-process agent.

    ``policy`` overrides the defaults by kind or by tool name. ``server``, ``request`` and ``admin`` apply to every call
    and only make it stricter. With ``remembered`` the grants of the session count. ``timeout_s`` is how long to wait
    before a call is denied, if no person is present (0: no limit). ``ask`` answers in this process. Paths in or above
    one of ``hidden`` are never opened to sandboxed code. ``denied`` are kinds and names of tools that the request
    excludes.
    """

    approvals: Approvals
    server: Permission = "auto"
    request: Permission = "auto"
    answers: frozenset[str] = frozenset()
    policy: Mapping[str, Permission] = field(default_factory=lambda: MappingProxyType({}))
    admin: AdminPolicy = NO_ADMIN_POLICY
    remembered: bool = True
    timeout_s: float = 0.0
    ask: Asker | None = None
    hidden: tuple[Path, ...] = ()
    denied: frozenset[str] = frozenset()

    @property
    def rules(self) -> Policy:
        return Policy(self.server, self.policy, self.admin)

    def ruling(self, spec: ToolSpec) -> Ruling:
        """Return whether a call of this tool runs, is asked about or is refused, and which setting decides so."""
        if self.denied & {spec.kind, spec.name}:
            return Ruling("deny", "this request")
        return self.rules.ruling(spec, self.request)

    async def decide(self, spec: ToolSpec, context: ToolContext) -> Verdict:
        """Decide about a call. If storing or answering the question fails, the call is denied with that reason; nothing
        is raised."""
        ruling = self.ruling(spec)
        if ruling.permission == "deny":
            return Verdict(False, f"{spec.name} was denied by policy: {ruling.because}")
        try:
            return await self._apply_ruling(spec, context, ruling)
        except StoreError as error:
            return Verdict(False, f"denied: the question could not be kept ({error.message})")

    async def allows_unasked(self, spec: ToolSpec, context: ToolContext) -> bool:
        """Return whether a call of this tool runs without asking a person; False if the stored decisions cannot be
        read."""
        try:
            return self.ruling(spec).permission == "auto" and await self._find_decision(spec, context) != "deny"
        except StoreError:
            return False

    async def _apply_ruling(self, spec: ToolSpec, context: ToolContext, ruling: Ruling) -> Verdict:
        granted = await self._find_decision(spec, context)
        if granted == "deny":
            return Verdict(False, f"denied: {NEVER}", "never")
        if ruling.permission == "auto":
            return Verdict(True, f"allowed by {ruling.because}")
        again = self._reason_to_ask_again(spec, context)
        if granted == "approve" and self.remembered and not ruling.firm and not again:
            return Verdict(True, "a person allowed it for this session", "session")
        wanted = {"*"} if again else {spec.kind, "*"}
        if self.ask is None and not self.answers & wanted:
            return Verdict(False, f"{spec.name} ({spec.where}) needs a person's yes, and nobody can answer here{again}")
        return await self._ask_person(spec, context, ruling, again)

    async def _find_decision(self, spec: ToolSpec, context: ToolContext) -> Decision | None:
        for grant in await self.approvals.grants.grants(context.key):
            if (grant.kind, grant.tool) == (spec.kind, spec.name):
                return grant.decision
        return None

    def _reason_to_ask_again(self, spec: ToolSpec, context: ToolContext) -> str:
        """Return why an earlier approval does not count: text from strangers may have caused this call."""
        return f" ({context.foreign})" if spec.kind in LIVE and context.foreign else ""

    async def _ask_person(self, spec: ToolSpec, context: ToolContext, ruling: Ruling, again: str) -> Verdict:
        question = create_question(spec, context)
        required = ApprovalRequired(
            question.id,
            question.call,
            spec.name,
            spec.kind,
            spec.where,
            shown_code(context.call, spec.kind),
            dict(context.call.arguments),
            source=spec.source,
            label=spec.label or spec.name,
            shown=question.shown,
            remember=("never",) if ruling.firm or again else ("session", "never"),
            until=self.until(question),
            again=again.strip(" ()"),
        )
        return await self.ask_question(question, required, context, lambda answer: create_grant(answer, spec))

    def until(self, question: ApprovalQuestion) -> float | None:
        """Return when an unanswered question counts as no, in seconds since the epoch; None if it waits without
        limit."""
        return None if "*" in self.answers or not self.timeout_s else question.asked + self.timeout_s

    async def ask_question(
        self,
        question: ApprovalQuestion,
        required: ApprovalRequired,
        context: ToolContext,
        grant: Callable[[Answer], Grant],
    ) -> Verdict:
        """Ask the question and wait for the answer: from ``ask`` in this process if it is set, else from any client
        that follows the turn."""
        tasks: list[asyncio.Task[None]] = []

        def emit(body: EventBody) -> None:
            context.emit(body)
            if body is required and self.ask is not None:
                tasks.append(asyncio.create_task(self._answer(question, required, self.ask)))

        try:
            return await self.approvals.ask(question, required, emit, grant)
        finally:
            for task in tasks:
                task.cancel()

    async def _answer(self, question: ApprovalQuestion, required: ApprovalRequired, ask: Asker) -> None:
        """Call ``ask`` in a thread, because it may block. It is foreign code: if it fails in any way, the call is
        denied."""
        try:
            decision = await asyncio.to_thread(ask, required)
            if inspect.isawaitable(decision):
                decision = await decision
            answer = decision if isinstance(decision, Answer) else Answer("approve" if decision else "deny")
            await self.approvals.answer(question.key.namespace, question.id, answer)
        except Exception as error:  # the handler is foreign code and may raise anything
            log.warning("the approval handler failed", exc_info=error)
            self.approvals.fail(question.id, f"denied: the approval handler failed ({type(error).__name__})")


def create_question(spec: ToolSpec, context: ToolContext) -> ApprovalQuestion:
    call = context.call
    shown = hash_shown_call(spec.name, spec.where, call.arguments)
    id = f"appr_{secrets.token_hex(16)}"
    return ApprovalQuestion(id, context.key, context.turn, call.id, spec.kind, spec.name, shown, asked=time.time())


def create_grant(answer: Answer, spec: ToolSpec) -> Grant:
    return Grant(spec.kind, spec.name, answer.decision)


def shown_code(call: ToolCall, kind: str = "") -> str:
    """Return exactly what will run or change, for a person to read."""
    if kind == EDIT:
        return str(call.arguments.get("diff", ""))
    code = call.arguments.get("code")
    if isinstance(code, str):
        return code
    return "\n".join(f"{name} = {value!r}" for name, value in call.arguments.items())

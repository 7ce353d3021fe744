"""Implements the gate that every tool call must pass, whichever API began the turn. The gate allows the call, denies
it, or asks a person.

A client declares in its request for which kinds of calls it can obtain a person's answer (``answers``): ``*`` for all
kinds if a user is at the notebook; only ``python.live``, code in the user's kernel, if the user ran ``%agent allow
live`` and may be away; none for a client without a user. If a call requires an answer that nobody can give, it is
denied at once, with that reason.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from agent_kernel.core.approval import ApprovalQuestion, Decision, Grant
from agent_kernel.core.errors import StoreError
from agent_kernel.core.events import ApprovalRequired, EventBody
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import ToolContext, ToolSpec
from agent_kernel.core.settings import Permission
from agent_kernel.permissions.admin_policy import NO_ADMIN_POLICY, AdminPolicy
from agent_kernel.permissions.approval_answer import Answer, Verdict, hash_shown_call
from agent_kernel.permissions.approvals import Approvals

log = logging.getLogger(__name__)
Asker: TypeAlias = Callable[[ApprovalRequired], "bool | Answer | Awaitable[bool | Answer]"]
"""A function of the program that runs the agent. It answers questions in place of a person, with True, False or an
Answer, and may be a coroutine function."""
NEVER = "the person does not want to be asked for it again in this session"
STRICTNESS: tuple[Permission, ...] = ("auto", "ask", "deny")
DEFAULTS: Mapping[str, Permission] = MappingProxyType(
    {
        "python.sandbox": "auto",
        "python.draft": "auto",
        "shell": "auto",
        "files.read": "auto",
        "files.write": "auto",
        "skills": "auto",
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
        "path": "ask",
    }
)
"""The default permission by kind of call; for a kind that is not listed it is ``ask``. ``files.write`` and ``skills``
are allowed because they write only in the work directory."""
EDIT = "notebook.edit"
LIVE = frozenset({"python.live", EDIT, "notebook.run"})
"""Kinds of calls that act on the user's own kernel and notebook."""
FOREIGN = frozenset({"web", "mcp", "dispatch"})
"""Kinds of calls whose results are text of unknown origin. A LIVE call after one of them may do what that text says and
not what the user wants, so a person is asked again."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Decides about the calls in the turns of one request, or of one in-process agent.

    ``policy`` overrides the default permissions, by kind of call or by name of a tool. ``server``, ``request`` and
    ``admin`` apply to every call and can only make the result stricter. ``answers`` are the kinds of calls for which
    the client can obtain a person's answer. If ``remembered`` is true, the grants of the session count. ``timeout_s``
    is the time in seconds after which an unanswered question denies the call, if no person is present (0: no limit).
    ``ask`` is a function in this process that answers questions. Paths in or above one of ``hidden`` are never opened
    to sandboxed code. ``denied`` are the kinds and names of tools that the request excludes.
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
        """Return whether a call of this tool runs, needs a person's answer or is refused, and which setting determines
        that."""
        if self.denied & {spec.kind, spec.name}:
            return Ruling("deny", "this request")
        return self.rules.ruling(spec, self.request)

    async def decide(self, spec: ToolSpec, context: ToolContext) -> Verdict:
        """Decide whether a call may run. If a question or its answer cannot be stored, no error is raised; the call is
        denied, and the reason says so."""
        ruling = self.ruling(spec)
        if ruling.permission == "deny":
            return Verdict(False, f"{spec.name} was denied by policy: {ruling.because}")
        try:
            return await self._apply_ruling(spec, context, ruling)
        except StoreError as error:
            return Verdict(False, f"denied: the question to a person could not be stored ({error.message})")

    async def allows_unasked(self, spec: ToolSpec, context: ToolContext) -> bool:
        """Return whether a call of this tool runs without a question to a person; False if the stored decisions cannot
        be read."""
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
        accepted_answers = {"*"} if again else {spec.kind, "*"}
        if self.ask is None and not self.answers & accepted_answers:
            return Verdict(False, f"{spec.name} ({spec.where}) needs a person's yes, and nobody can answer here{again}")
        return await self._ask_person(spec, context, ruling, again)

    async def _find_decision(self, spec: ToolSpec, context: ToolContext) -> Decision | None:
        for grant in await self.approvals.grants.grants(context.key):
            if (grant.kind, grant.tool) == (spec.kind, spec.name):
                return grant.decision
        return None

    def _reason_to_ask_again(self, spec: ToolSpec, context: ToolContext) -> str:
        """Return why an earlier approval does not count for this call: text of unknown origin may have caused the
        call. Return an empty string if the approval counts."""
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
            until=self.deadline(question),
            again=again.strip(" ()"),
            editable=spec.editable if isinstance(context.call.arguments.get(spec.editable), str) else "",
        )
        return await self.ask_question(question, required, context, lambda answer: create_grant(answer, spec))

    def deadline(self, question: ApprovalQuestion) -> float | None:
        """Return the time at which an unanswered question counts as a denial, in seconds since the epoch; None if it
        waits without limit."""
        return None if "*" in self.answers or not self.timeout_s else question.asked + self.timeout_s

    async def ask_question(
        self,
        question: ApprovalQuestion,
        required: ApprovalRequired,
        context: ToolContext,
        grant: Callable[[Answer], Grant],
    ) -> Verdict:
        """Ask the question and wait for the answer. If ``ask`` is set, this function in this process answers; otherwise
        any client that follows the turn may answer. ``grant`` converts an answer that is to be remembered into a
        grant."""
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
        """Answer the question with the result of ``ask``. This function runs in a thread, because it may block. If it
        raises any error, the call is denied."""
        try:
            decision = await asyncio.to_thread(ask, required)
            if inspect.isawaitable(decision):
                decision = await decision
            answer = decision if isinstance(decision, Answer) else Answer("approve" if decision else "deny")
            await self.approvals.answer(question.key.namespace, question.id, answer)
        except Exception as error:  # the handler is foreign code and may raise anything
            log.warning("the approval handler failed", exc_info=error)
            self.approvals.fail(
                question.id, f"denied: the function that answers approval requests failed ({type(error).__name__})"
            )


def create_question(spec: ToolSpec, context: ToolContext) -> ApprovalQuestion:
    call = context.call
    call_hash = hash_shown_call(spec.name, spec.where, call.arguments)
    id = f"appr_{secrets.token_hex(16)}"
    return ApprovalQuestion(id, context.key, context.turn, call.id, spec.kind, spec.name, call_hash, asked=time.time())


def create_grant(answer: Answer, spec: ToolSpec) -> Grant:
    return Grant(spec.kind, spec.name, answer.decision)


def shown_code(call: ToolCall, kind: str = "") -> str:
    """Return, for a person to read, exactly what a call will run or change: its code, its diff, or its arguments."""
    if kind == EDIT:
        return str(call.arguments.get("diff", ""))
    code = call.arguments.get("code")
    if isinstance(code, str):
        return code
    return "\n".join(f"{name} = {value!r}" for name, value in call.arguments.items())


# Determines the permission of a call: auto, ask or deny. It is the strictest permission among the defaults, the
# server's settings, the administrator's policy and the request. The module does no I/O.


def strictest(*permissions: Permission) -> Permission:
    return max(permissions, key=STRICTNESS.index)


@dataclass(frozen=True, slots=True)
class Ruling:
    """A permission, and a description of the setting from which it comes (``because``). If ``firm`` is true, a person
    is asked about every call, whatever was granted before."""

    permission: Permission
    because: str
    firm: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of a server.

    ``server`` is the setting ``permission``. ``own`` is the setting ``policy``, which overrides the defaults by kind of
    call or name of a tool. These settings can be stricter than the administrator's policy ``admin``, but not less
    strict.
    """

    server: Permission = "auto"
    own: Mapping[str, Permission] = field(default_factory=lambda: MappingProxyType({}))
    admin: AdminPolicy = NO_ADMIN_POLICY

    def ruling(self, spec: ToolSpec, request: Permission = "auto") -> Ruling:
        voices = [*self._base(spec), *self.admin.rulings(spec.kind, spec.name)]
        voices += [(self.server, "the setting permission"), (request, "this request")]
        permission, because = max(voices, key=lambda voice: STRICTNESS.index(voice[0]))
        firm = any(effect == "ask" for effect, _ in self.admin.rulings(spec.kind, spec.name))
        return Ruling(permission, because, firm)

    def table(self) -> Iterator[tuple[str, Ruling]]:
        """Yield (name, ruling) for every kind of call, and for every name in the settings or in the administrator's
        policy."""
        for name in sorted({*DEFAULTS, *self.own, *self.admin.policy}):
            yield name, self.ruling(ToolSpec(name, "", {}, kind=name))

    def _base(self, spec: ToolSpec) -> list[tuple[Permission, str]]:
        """Return the permission that the settings or the defaults give a tool, and where it comes from. The tool's name
        decides, or if there is no rule for the name, the tool's kind. For a client's own tool both rules are returned,
        because the name that a client gives a tool must not make a rule less strict."""
        kind = self._kind_permission(spec.kind)
        if spec.name in DEFAULTS or spec.name not in self.own:
            return [kind]
        named = (self.own[spec.name], f"the setting policy for {spec.name}")
        return [kind, named] if spec.source == "external" else [named]

    def _kind_permission(self, kind: str) -> tuple[Permission, str]:
        if kind in self.own:
            return self.own[kind], f"the setting policy for {kind}"
        return DEFAULTS.get(kind, "ask"), "the defaults"


def to_json(ruling: Ruling) -> dict[str, Any]:
    return {"permission": ruling.permission, "because": ruling.because, "firm": ruling.firm}

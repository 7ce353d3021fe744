"""Follows a turn for an MCP client to its end, and asks the client's user for approvals where that is possible."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from agent_kernel.core.approval import Remember
from agent_kernel.core.errors import AgentKernelError, Conflict, NotFound
from agent_kernel.core.events import (
    ApprovalRequired,
    ApprovalResolved,
    CallFinished,
    CallStarted,
    Event,
    FileProduced,
    ModelLoading,
    Notice,
    Queued,
    TextDelta,
    TurnFinished,
)
from agent_kernel.permissions.approval_answer import Answer
from jupyter_ext.turns.turn_control import TurnControl
from jupyter_ext.turns.turns import LiveTurn, Turns

CODE_CHARS = 200_000
"""Maximum characters of code in a question to an MCP client. Longer code cannot be shown completely, so it is
denied."""
ASK: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "properties": {
            "decision": {
                "type": "string",
                "title": "Let it run?",
                "enum": ["allow once", "allow in this session", "deny"],
                "default": "deny",
            },
            "message": {"type": "string", "title": "What to tell the model instead"},
        },
        "required": ["decision"],
    }
)


class InvalidArguments(ValueError):
    """Raised for invalid arguments of a call. MCP requires the JSON-RPC error INVALID_PARAMS for these, while other
    errors become the result of the call."""


@dataclass(frozen=True, slots=True)
class McpQuestion:
    """An approval question for the client. ``id`` is the id of the approval, and ``shown`` the hash of what the
    question shows. ``state`` is the text that the client sends back with the answer."""

    id: str
    text: str
    shown: str
    state: str = ""


@dataclass(frozen=True, slots=True)
class McpOutcome:
    """The result of a tool call of an MCP client. ``facts`` are structured results for programs."""

    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    failed: bool = False


class Client(Protocol):
    """The client of a call. ``elicits``: its user can be asked. ``answers_later``: the answer comes with another
    request, which brings ``state`` and ``answers`` ({question: (action, content)})."""

    elicits: bool
    answers_later: bool
    state: str
    answers: Mapping[str, tuple[str, Mapping[str, Any]]]

    async def progress(self, done: float, text: str) -> None: ...

    async def elicit(self, question: McpQuestion) -> tuple[str, Mapping[str, Any]]: ...


class McpTurn:
    """Follows ``turn`` and asks the client for approvals. If the client cancels the call, the turn is cancelled."""

    def __init__(self, turns: Turns, control: TurnControl, turn: LiveTurn, client: Client) -> None:
        self._turns = turns
        self._control = control
        self._turn = turn
        self._client = client
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._text: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._files: list[Any] = []

    async def outcome(self, after: int = 0) -> McpOutcome | McpQuestion:
        """Return the outcome, or a question if the client answers later; the turn then keeps waiting."""
        try:
            # The outcome needs all events; the client has already seen those up to ``after``.
            async with aclosing(self._turn.log.follow(0)) as events:
                async for event in events:
                    if question := await self._apply(event, new=event.seq > after):
                        return question
        except asyncio.CancelledError:
            await asyncio.shield(self._turns.cancel(self._turn, "the MCP client cancelled the call"))
            raise
        finally:
            for task in self._asking.values():
                task.cancel()
        return self._outcome()

    async def _apply(self, event: Event, *, new: bool) -> McpQuestion | None:
        body = event.body
        if isinstance(body, TextDelta):
            self._text.append(body.text)
        elif isinstance(body, CallStarted):
            self._text.clear()  # text before a call is not the answer
        elif isinstance(body, CallFinished):
            self._calls.append({"name": body.name, "status": body.status})
        elif isinstance(body, FileProduced):
            self._files.append(
                {key: body.file[key] for key in ("id", "name", "mime_type", "bytes") if key in body.file}
            )
        elif isinstance(body, ApprovalResolved) and body.approval in self._asking:
            self._asking.pop(body.approval).cancel()
        if new:
            await self._progress(event)
            if isinstance(body, ApprovalRequired) and self._client.elicits:
                return self._ask(body, event.seq)
        return None

    def _ask(self, required: ApprovalRequired, seq: int) -> McpQuestion | None:
        state = json.dumps({"turn": self._turn.id, "after": seq})
        question = McpQuestion(required.approval, _words(required), required.shown, state)
        if len(required.code) > CODE_CHARS:
            refusal = {"message": "the code is too long to be shown to a person before it runs"}
            refused = self.answer(question.id, "decline", refusal, required.shown)
            self._asking[question.id] = asyncio.create_task(refused, name=f"refusal {question.id}")
            return None
        if self._client.answers_later:
            return question
        self._asking[question.id] = asyncio.create_task(self._elicit(question), name=f"question {question.id}")
        return None

    async def _elicit(self, question: McpQuestion) -> None:
        """Ask the client. If the client fails, the question stays open for the panel until it times out."""
        with contextlib.suppress(Exception):
            action, content = await self._client.elicit(question)
            await self.answer(question.id, action, content, question.shown)

    async def answer(self, id: str, action: str, content: Mapping[str, Any], shown: str = "") -> None:
        """Record an answer to the question ``id``. The MCP action ``decline`` denies; ``cancel``, which dismisses the
        question, counts as no answer."""
        if action == "cancel":
            return
        decision = str(content.get("decision", "")) if action == "accept" else "deny"
        allowed = decision in ("allow once", "allow in this session")
        remember: Remember = "session" if decision == "allow in this session" else "once"
        answer = Answer("approve" if allowed else "deny", remember, str(content.get("message") or "")[:500], shown)
        with contextlib.suppress(Conflict, NotFound):  # the user answered in the panel, or the question timed out
            try:
                await self._control.approve(self._turn.spec.key.namespace, id, answer)
            except AgentKernelError:
                if remember == "once":
                    raise
                # If the server refuses to remember the decision, the approval is valid for this call only.
                once = Answer("approve", "once", shown=shown)
                await self._control.approve(self._turn.spec.key.namespace, id, once)

    async def _progress(self, event: Event) -> None:
        text = _line(event)
        if text:
            with contextlib.suppress(Exception):  # only progress messages are lost if the client no longer listens
                await self._client.progress(float(event.seq), text)

    def _outcome(self) -> McpOutcome:
        end = self._turn.log.finished or TurnFinished("failed", "it has no end", 0, {})
        failed = end.state != "committed"
        text = "".join(self._text)
        if failed:
            error = dict(end.error or {})
            text = f"The turn ended as {end.state}: {error.get('message') or end.reason}\n{text}".strip()
        facts = {
            "session": self._turn.spec.key.id,
            "turn": self._turn.id,
            "state": end.state,
            "calls": self._calls,
            "files": self._files,
            "usage": dict(end.usage),
        }
        return McpOutcome(text or "(no answer)", facts, failed)


def _words(required: ApprovalRequired) -> str:
    why = f" ({required.again})" if required.again else ""
    return f"The agent wants to run {required.label or required.name} ({required.target}){why}:\n\n{required.code}"


def _line(event: Event) -> str:
    """Return the progress text for an event; empty for most events."""
    body = event.body
    match body:
        case Queued(position, reason):
            return f"waiting at place {position}: {reason}"
        case ModelLoading(model, stage):
            return f"{model}: {stage}"
        case CallStarted():
            return f"running {body.name}"
        case CallFinished():
            return f"{body.name}: {body.status}"
        case ApprovalRequired():
            return f"{body.label or body.name} waits for a person's approval"
        case Notice():
            return body.line
    return ""

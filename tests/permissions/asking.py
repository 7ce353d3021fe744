"""Shared parts of the gate's tests: tools of every kind, and a question that waits for its answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from agent_kernel.core.events import ApprovalRequired, ApprovalResolved, Emit, EventBody
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import ToolContext, ToolSpec
from agent_kernel.core.session import SessionKey
from agent_kernel.permissions import Answer, Approvals, Gate, Verdict

KEY = SessionKey("local", "s")
LIVE = ToolSpec("python", "", {}, kind="python.live", where="live")
SANDBOX = ToolSpec("python", "", {}, kind="python.sandbox", where="sandbox")
SEARCH = ToolSpec("web_search", "", {}, kind="web")
UNHEARD = ToolSpec("rocket", "", {}, kind="rocket.launch")
CALL = ToolCall("c1", "python", {"code": "df.head()\n"})
ANYBODY = frozenset("*")


def context(
    emit: Emit = lambda body: None, *, call: ToolCall = CALL, foreign: str = "", turn: str = "t"
) -> ToolContext:
    return ToolContext(KEY, turn, 1, call, emit, foreign=foreign)


@dataclass
class Asked:
    """A gate that asks about one call, up to its question."""

    gate: Gate
    spec: ToolSpec = LIVE
    call: ToolCall = CALL
    foreign: str = ""
    events: list[EventBody] = field(default_factory=list)
    task: asyncio.Task[Verdict] | None = None

    async def question(self) -> ApprovalRequired:
        known = len(self.events)
        asked = context(self.events.append, call=self.call, foreign=self.foreign)
        self.task = asyncio.create_task(self.gate.decide(self.spec, asked))
        while not any(isinstance(body, ApprovalRequired) for body in self.events[known:]):
            assert not self.task.done(), f"there was no question: {self.task.result()}"
            await asyncio.sleep(0)
        return next(body for body in self.events[known:] if isinstance(body, ApprovalRequired))

    async def verdict(self) -> Verdict:
        assert self.task is not None
        return await self.task

    async def answered(self, answer: Answer) -> Verdict:
        question = await self.question()
        await self.gate.approvals.answer("local", question.approval, answer)
        return await self.verdict()

    @property
    def resolved(self) -> list[ApprovalResolved]:
        return [body for body in self.events if isinstance(body, ApprovalResolved)]


def gate(**options: object) -> Gate:
    """Return a gate with a user who can be asked about everything."""
    return Gate(Approvals(), **{"answers": ANYBODY, **options})  # type: ignore[arg-type]  # the fields of a gate

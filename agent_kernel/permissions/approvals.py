"""Questions about calls that wait for a person, in this process; each is answered once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agent_kernel.core.errors import Conflict, InvalidRequest, NotFound
from agent_kernel.core.events import ApprovalRequired, ApprovalResolved, Emit
from agent_kernel.core.permission_grant import UNANSWERED, ApprovalQuestion, Grant
from agent_kernel.core.seams.grant_store import Grants
from agent_kernel.permissions.decision import Answer, Verdict, to_verdict
from agent_kernel.permissions.memory_grants import MemoryGrants

GONE = {
    "waiting": "it waits at another server, or its server stopped",
    "cancelled": "its turn was stopped",
    "interrupted": "its server stopped before it was answered",
}


@dataclass(slots=True, eq=False)
class PendingQuestion:
    """A question that is shown as ``required``. ``grant`` makes of a remembered answer what is kept."""

    question: ApprovalQuestion
    required: ApprovalRequired
    grant: Callable[[Answer], Grant]
    verdict: asyncio.Future[Verdict]
    answer: Answer | None = None
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)


class Approvals:
    """``grants`` keeps questions, answers and what they hold for. The id of a question is a secret that only its event
    carries, and the list of those that may answer it."""

    def __init__(self, grants: Grants | None = None, clock: Callable[[], float] = time.time) -> None:
        self.grants: Grants = grants or MemoryGrants()
        self._clock = clock
        self._waiting: dict[str, PendingQuestion] = {}
        self._stopping = False
        self._unanswered: set[str] = set()

    @property
    def waiting(self) -> list[PendingQuestion]:
        """The oldest first."""
        return list(self._waiting.values())

    async def ask(
        self, question: ApprovalQuestion, required: ApprovalRequired, emit: Emit, grant: Callable[[Answer], Grant]
    ) -> Verdict:
        """Waits until somebody answers, or until ``required.until``: then it is no. A turn that is stopped takes its
        question back. Raises StoreError."""
        future = asyncio.get_running_loop().create_future()
        waiting = self._waiting[question.id] = PendingQuestion(question, required, grant, future)
        try:
            await self.grants.ask(question)
            emit(required)
            verdict = await self._verdict(waiting)
        except asyncio.CancelledError:
            if self._stopping:
                self._unanswered.add(question.turn)
                emit(ApprovalResolved(question.id, question.call, "interrupted", UNANSWERED))
            else:
                emit(ApprovalResolved(question.id, question.call, "cancelled", "the turn was stopped"))
            raise
        finally:
            del self._waiting[question.id]
        emit(ApprovalResolved(question.id, question.call, "approve" if verdict.allowed else "deny", verdict.reason))
        return verdict

    async def find(self, namespace: str, id: str) -> ApprovalQuestion:
        """Raises NotFound."""
        waiting = self._waiting.get(id)
        if waiting is not None and waiting.question.key.namespace == namespace:
            return waiting.question
        kept = await self.grants.question(namespace, id)
        if kept is None:
            raise NotFound("There is no such approval.")
        return kept

    async def answer(self, namespace: str, id: str, answer: Answer) -> Answer:
        """What was answered: this, or the same before. Raises NotFound; Conflict when it was answered otherwise, when
        nobody waits for it any more, or when the person saw something else; InvalidRequest for what can not be
        remembered; StoreError, and then the question still waits."""
        waiting = self._waiting.get(id)
        if waiting is None or waiting.question.key.namespace != namespace:
            return self._same(await self.find(namespace, id), answer)
        _check(waiting, answer)
        answer = replace(answer, shown=waiting.required.shown)
        async with waiting.saving:
            if waiting.answer is not None:
                return _agreed(waiting.answer, answer)
            kept = to_answer(await self._kept(waiting, answer))
            waiting.answer = kept  # not always this one: whoever was cancelled while it was kept has answered too
            if not waiting.verdict.done():
                waiting.verdict.set_result(to_verdict(kept))
            return _agreed(kept, answer)

    def fail(self, id: str, reason: str) -> None:
        """It is no, whatever becomes of what is kept."""
        waiting = self._waiting.get(id)
        if waiting is not None and not waiting.verdict.done():
            waiting.verdict.set_result(Verdict(False, reason))

    def stop(self) -> None:
        """The server ends: turns that are cancelled from now on were interrupted while they waited."""
        self._stopping = True

    def interrupted(self, turn: str) -> bool:
        """Whether the turn ended because its question could not be answered any more."""
        return turn in self._unanswered

    async def _verdict(self, waiting: PendingQuestion) -> Verdict:
        until = waiting.required.until
        if until is None:
            return await waiting.verdict
        seconds = max(0.0, until - self._clock())
        done, _ = await asyncio.wait([waiting.verdict], timeout=seconds)
        if not done:
            silence = Answer("deny", message=f"nobody answered within {until - waiting.question.asked:.0f} s")
            async with waiting.saving:
                if not waiting.verdict.done():
                    waiting.answer = silence
                    waiting.verdict.set_result(to_verdict(silence))
                    await self._kept(waiting, silence)
        return waiting.verdict.result()

    async def _kept(self, waiting: PendingQuestion, answer: Answer) -> ApprovalQuestion:
        question = replace(
            waiting.question,
            outcome=answer.decision,
            remember=answer.remember,
            message=answer.message,
            answered=self._clock(),
        )
        return await self.grants.answer(question, waiting.grant(answer) if answer.remember != "once" else None)

    def _same(self, kept: ApprovalQuestion, answer: Answer) -> Answer:
        """The answer to a question that does not wait here."""
        if answer.shown and kept.shown != answer.shown:
            raise _other_call()
        return _agreed(to_answer(kept), answer)


def to_answer(kept: ApprovalQuestion) -> Answer:
    """Raises Conflict where nothing was answered, and nobody waits for it."""
    if kept.outcome not in ("approve", "deny"):
        raise Conflict(f"This call is not waited for: {GONE[kept.outcome]}.", details={"outcome": kept.outcome})
    return Answer(kept.outcome, kept.remember, kept.message, kept.shown)


def _check(waiting: PendingQuestion, answer: Answer) -> None:
    if answer.shown and answer.shown != waiting.required.shown:
        raise _other_call()
    if answer.remember not in ("once", *waiting.required.remember):
        can = ", ".join(waiting.required.remember) or "nothing"
        raise InvalidRequest(f"For this call {answer.remember!r} can not be remembered; what can is: {can}.")


def _agreed(first: Answer, again: Answer) -> Answer:
    if (first.decision, first.remember) == (again.decision, again.remember):
        return first
    raise Conflict(
        f"This was answered already: {first.decision} ({first.remember}){f', {first.message}' * bool(first.message)}.",
        details={"decision": first.decision, "remember": first.remember, "message": first.message},
    )


def _other_call() -> Conflict:
    return Conflict(
        "The answer is for something else than what waits.", hint="Look at the call again and decide about that."
    )

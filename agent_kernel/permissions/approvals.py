"""Holds the questions about calls that wait for a user's answer in this process. Each question is answered once.
Also holds the grants of sessions that only this process stores."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agent_kernel.core.approval import UNANSWERED, ApprovalQuestion, Grant
from agent_kernel.core.errors import Conflict, InvalidRequest, NotFound
from agent_kernel.core.events import ApprovalRequired, ApprovalResolved, Emit
from agent_kernel.core.seams.grant_store import Grants
from agent_kernel.core.session import SessionKey
from agent_kernel.permissions.approval_answer import Answer, Verdict, hash_edit, to_verdict

GONE = {
    "waiting": "it is open at another server, or its server stopped",
    "cancelled": "its turn was stopped",
    "interrupted": "its server stopped before it was answered",
}
MAX_QUESTIONS = 10_000
"""Maximum number of stored questions. Beyond it, the oldest ones are forgotten, and answers to them have no effect."""


@dataclass(slots=True, eq=False)
class PendingQuestion:
    """A question that waits for an answer. ``required`` is the event that shows the question to clients. ``grant``
    converts an answer that is to be remembered into the grant to store. ``edits`` maps hashes to the edited texts of
    the answers, because the store keeps only the hash."""

    question: ApprovalQuestion
    required: ApprovalRequired
    grant: Callable[[Answer], Grant]
    verdict: asyncio.Future[Verdict]
    answer: Answer | None = None
    edits: dict[str, str | None] = field(default_factory=dict)
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)


class Approvals:
    """The open questions of this process.

    ``grants`` stores questions, answers and grants. The id of a question is a secret, because it is enough to answer
    the question. Only the event of the question and the list of open questions contain the id, and only clients that
    may answer can read these.
    """

    def __init__(self, grants: Grants | None = None, clock: Callable[[], float] = time.time) -> None:
        self.grants: Grants = grants or MemoryGrants()
        self._clock = clock
        self._waiting: dict[str, PendingQuestion] = {}
        self._stopping = False
        self._unanswered: set[str] = set()

    @property
    def waiting(self) -> list[PendingQuestion]:
        """The questions that are open in this process, oldest first."""
        return list(self._waiting.values())

    async def ask(
        self, question: ApprovalQuestion, required: ApprovalRequired, emit: Emit, grant: Callable[[Answer], Grant]
    ) -> Verdict:
        """Emit the event ``required`` and wait for an answer, at most until ``required.until``; without an answer by
        then, the call is denied. If the turn is stopped, its question is withdrawn. Raises StoreError."""
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
        decision = "approve" if verdict.allowed else "deny"
        emit(ApprovalResolved(question.id, question.call, decision, verdict.reason, verdict.edited))
        return verdict

    async def find(self, namespace: str, id: str) -> ApprovalQuestion:
        """Return the question with this id, open or not. Raises NotFound."""
        waiting = self._waiting.get(id)
        if waiting is not None and waiting.question.key.namespace == namespace:
            return waiting.question
        question = await self.grants.question(namespace, id)
        if question is None:
            raise NotFound("There is no approval request with this id.")
        return question

    async def answer(self, namespace: str, id: str, answer: Answer) -> Answer:
        """Record an answer to the question ``id``, and return it. If an equal answer was given before, return the
        earlier answer.

        Raises NotFound. Raises Conflict if the question was answered differently, is no longer open, or if the person
        saw a different call. Raises InvalidRequest for a scope that this question does not offer, and for an edited
        text if this call cannot be edited. Raises StoreError, after which the question is still open.
        """
        waiting = self._waiting.get(id)
        if waiting is None or waiting.question.key.namespace != namespace:
            return self._confirm_stored(await self.find(namespace, id), answer)
        _check(waiting, answer)
        answer = replace(answer, shown=waiting.required.shown)
        async with waiting.saving:
            if waiting.answer is None:
                # The stored answer may come from an earlier call of this method that was cancelled while it stored the
                # answer.
                waiting.edits[hash_edit(answer.edited)] = answer.edited
                question = await self._store_answer(waiting, answer)
                waiting.answer = replace(to_answer(question), edited=waiting.edits.get(question.edited))
                if not waiting.verdict.done():
                    waiting.verdict.set_result(to_verdict(waiting.answer, _editable_text(waiting)))
            return _confirm_answer(waiting.answer, hash_edit(waiting.answer.edited), answer)

    def fail(self, id: str, reason: str) -> None:
        """Deny the call of the question ``id``, because its answer could not be obtained; ``reason`` says why. The call
        is denied even if the denial cannot be stored."""
        waiting = self._waiting.get(id)
        if waiting is not None and not waiting.verdict.done():
            waiting.verdict.set_result(Verdict(False, reason))

    def stop(self) -> None:
        """Record that the server is stopping. Turns that are cancelled from now on while they wait for an answer count
        as interrupted."""
        self._stopping = True

    def was_interrupted(self, turn: str) -> bool:
        """Return whether the turn ended because the server stopped before the turn's question was answered."""
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
                    await self._store_answer(waiting, silence)
        return waiting.verdict.result()

    async def _store_answer(self, waiting: PendingQuestion, answer: Answer) -> ApprovalQuestion:
        question = replace(
            waiting.question,
            outcome=answer.decision,
            remember=answer.remember,
            message=answer.message,
            answered=self._clock(),
            edited=hash_edit(answer.edited),
        )
        return await self.grants.answer(question, waiting.grant(answer) if answer.remember != "once" else None)

    def _confirm_stored(self, stored: ApprovalQuestion, answer: Answer) -> Answer:
        """Return the stored answer to the question ``stored``, which is not open in this process, if ``answer`` equals
        it. Raises Conflict otherwise."""
        if answer.shown and stored.shown != answer.shown:
            raise _other_call()
        return _confirm_answer(to_answer(stored), stored.edited, answer)


def to_answer(stored: ApprovalQuestion) -> Answer:
    """Return the stored answer to a question. Raises Conflict if the question is no longer open and has no answer."""
    if stored.outcome not in ("approve", "deny"):
        raise Conflict(f"This approval is no longer open: {GONE[stored.outcome]}.", details={"outcome": stored.outcome})
    return Answer(stored.outcome, stored.remember, stored.message, stored.shown)


def _check(waiting: PendingQuestion, answer: Answer) -> None:
    if answer.shown and answer.shown != waiting.required.shown:
        raise _other_call()
    if answer.remember not in ("once", *waiting.required.remember):
        can = ", ".join(waiting.required.remember) or "nothing"
        raise InvalidRequest(
            f"'remember' cannot be {answer.remember!r} for this call. Besides 'once', it can be: {can}."
        )
    if answer.edited is not None and not waiting.required.editable:
        raise InvalidRequest("This call cannot be edited; approve or deny it as it is.")


def _editable_text(waiting: PendingQuestion) -> object:
    """Return the argument of the waiting call that a person may change before the call runs."""
    return waiting.required.arguments.get(waiting.required.editable)


def _confirm_answer(first: Answer, edited: str, new_answer: Answer) -> Answer:
    """Return ``first``, the stored answer to a question, if the new answer ``new_answer`` is equal to it. ``edited``
    is the hash of the edited text of the stored answer. Raises Conflict if the answers differ."""
    if (first.decision, first.remember, edited) == (
        new_answer.decision,
        new_answer.remember,
        hash_edit(new_answer.edited),
    ):
        return first
    raise Conflict(
        f"This question was already answered: {first.decision} (remembered for: {first.remember})"
        f"{', with another text' * bool(edited)}{f', {first.message}' * bool(first.message)}.",
        details={"decision": first.decision, "remember": first.remember, "message": first.message},
    )


def _other_call() -> Conflict:
    return Conflict(
        "The answer is for a different call than the one that waits.", hint="Look at the call again, then decide."
    )


# Stores the decisions of people in memory, for a session store that does not support grants. They last until this
# process ends.


class MemoryGrants:
    """An implementation of ``Grants`` in memory. It is not informed when sessions and turns end; the caller deletes
    their grants with ``revoke``."""

    def __init__(self) -> None:
        self._grants: dict[SessionKey, dict[tuple[str, str], Grant]] = defaultdict(dict)
        self._questions: dict[tuple[str, str], ApprovalQuestion] = {}

    async def grants(self, key: SessionKey) -> list[Grant]:
        grants = self._grants.get(key, {})
        return [grants[place] for place in sorted(grants)]

    async def grant(self, key: SessionKey, grant: Grant) -> None:
        self._grants[key][grant.kind, grant.tool] = grant

    async def revoke(self, key: SessionKey, kind: str | None = None, tool: str | None = None) -> int:
        grants = self._grants.get(key, {})
        gone = [place for place in grants if kind in (None, place[0]) and tool in (None, place[1])]
        for place in gone:
            del grants[place]
        return len(gone)

    async def ask(self, question: ApprovalQuestion) -> None:
        self._questions[question.key.namespace, question.id] = question
        while len(self._questions) > MAX_QUESTIONS:
            del self._questions[next(iter(self._questions))]

    async def answer(self, question: ApprovalQuestion, grant: Grant | None = None) -> ApprovalQuestion:
        place = question.key.namespace, question.id
        stored = self._questions.get(place, question)
        if stored.outcome != "waiting":
            return stored
        if grant is not None:
            await self.grant(question.key, grant)
        self._questions[place] = question
        return question

    async def question(self, namespace: str, id: str) -> ApprovalQuestion | None:
        return self._questions.get((namespace, id))


def grants_of(store: object) -> Grants:
    """Return the store itself if it supports grants, otherwise a new MemoryGrants."""
    return store if getattr(store, "grants", None) is not None else MemoryGrants()  # type: ignore[return-value]

"""Stores the decisions of people in memory, for a session store that does not support grants. They last until this
process ends."""

from __future__ import annotations

from collections import defaultdict

from agent_kernel.core.approval import ApprovalQuestion, Grant
from agent_kernel.core.seams.grant_store import Grants
from agent_kernel.core.session import SessionKey

MAX_QUESTIONS = 10_000
"""Maximum number of stored questions. Beyond it, the oldest ones are forgotten, and answers to them have no effect."""


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

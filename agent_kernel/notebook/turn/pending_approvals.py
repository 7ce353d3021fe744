"""Holds the approval requests of background turns that wait for an answer of the user."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import NamedTuple

from agent_kernel.core.events import ApprovalRequired
from agent_kernel.notebook.display.render import WAITING, Card, format_arguments


class PendingApproval(NamedTuple):
    """One approval request. ``card`` shows the call as it was at the time of the request."""

    request: ApprovalRequired
    session: str
    card: Card


@dataclass(slots=True)
class PendingApprovals:
    """The waiting approval requests by id. Threads that follow turns add requests; the main thread answers them."""

    _questions: dict[str, PendingApproval] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, request: ApprovalRequired, session: str, card: Card | None) -> None:
        code = card.code if card else format_arguments(request.arguments)
        with self._lock:
            question_card = Card(request.call, request.name, request.target, code, WAITING)
            self._questions[request.approval] = PendingApproval(request, session, question_card)

    def remove(self, approval: str) -> None:
        """Remove a request that some client has answered."""
        with self._lock:
            self._questions.pop(approval, None)

    def forget(self, calls: set[str]) -> None:
        """Remove the requests for these calls, because their turn has ended."""
        with self._lock:
            self._questions = {
                name: question for name, question in self._questions.items() if question.request.call not in calls
            }

    @property
    def questions(self) -> list[PendingApproval]:
        with self._lock:
            return list(self._questions.values())

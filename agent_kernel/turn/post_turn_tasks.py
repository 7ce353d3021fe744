"""Runs background work after a committed turn: writes a title for a new session, and a summary when the model's context
fills up.

No request waits for this work. The session's next turn cancels it, and a failure has no other effect."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from agent_kernel.core.errors import AgentKernelError, Conflict
from agent_kernel.core.events import Notice
from agent_kernel.core.protocols import Engine
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Session, SessionKey, Summary
from agent_kernel.turn.background_tasks import BackgroundTasks
from agent_kernel.turn.compaction import CompactionPolicy, Compactor
from agent_kernel.turn.titles import retitle, title_from_text
from agent_kernel.turn.turn_writer import TurnWriter

log = logging.getLogger(__name__)
SUMMARISED = "Earlier turns were summarised for the model ({reason}). You can undo the summary."
FAILED = "The earlier turns could not be summarised {times} times in a row: older ones are left out for the model. "
FAILED += "Compact the conversation to try again."


@dataclass(frozen=True, slots=True)
class AnsweredTurn:
    """A committed turn. ``first`` is true if it is the session's first turn. ``question`` is the user's message and
    ``answer`` the model's answer. ``share`` is the part of the model's context length that was in use."""

    key: SessionKey
    first: bool
    question: str
    answer: str
    share: float


class PostTurnTasks:
    """Writes titles and summaries for the sessions of one server. After each title, ``notify`` is called with the
    session's key and ``title``; after each summary, with the key and ``compacted``."""

    def __init__(
        self, store: SessionStore, compactor: Compactor, titles: Literal["rule", "engine", "off"] = "rule"
    ) -> None:
        self._store = store
        self.compactor = compactor
        self._titles = titles
        self._errands = BackgroundTasks()
        self._news: dict[SessionKey, Notice] = {}
        self._ruled: dict[SessionKey, str] = {}
        self.notify: Callable[[SessionKey, str], None] = lambda session, what: None

    @classmethod
    def on_demand(cls, store: SessionStore, ledger: TurnWriter) -> PostTurnTasks:
        """Create an instance that writes a summary only when the user requests one, and takes titles from the first
        message."""
        return cls(store, Compactor(ledger, CompactionPolicy(auto=False)))

    def note_end(self, answered: AnsweredTurn, engine: Engine) -> None:
        if self.compactor.policy.auto or answered.key in self._ruled:
            self._errands.start(answered.key, self._follow(answered, engine))

    def busy(self, key: SessionKey) -> bool:
        """Return whether a task of this session is running."""
        return self._errands.is_running(key)

    async def give_way(self, key: SessionKey) -> None:
        """Cancel the task of a session, because a turn begins."""
        await self._errands.give_way(key)

    def news(self, key: SessionKey) -> list[Notice]:
        """Return the notices about finished tasks of a session, each once."""
        notice = self._news.pop(key, None)
        return [notice] if notice else []

    def title(self, message: str) -> str:
        """Return the title of a session whose first message is ``message``; empty if titles are off."""
        return "" if self._titles == "off" else title_from_text(message)

    def note_begin(self, session: Session, title: str) -> None:
        """Record that a turn of the session begins. If it is the session's first turn, the model may replace ``title``
        after the turn, because that title was made from the question and not chosen by a person."""
        if self._titles == "engine" and title and not session.turns and session.title == title:
            self._ruled[session.key] = title

    async def compact(self, key: SessionKey, engine: Engine) -> Summary | None:
        """Write a summary because the user requested it, and return it. Raises EngineError, and Conflict if another
        process writes a summary, the branch changes, a turn of the session begins or the server stops."""
        return await self._errands.run_next(key, lambda: self.compactor.compact(key, engine))

    async def aclose(self) -> None:
        await self._errands.aclose()

    async def _follow(self, answered: AnsweredTurn, engine: Engine) -> None:
        try:
            if answered.first and (ruled := self._ruled.pop(answered.key, "")):
                await retitle(self._store, answered.key, engine, answered.question, answered.answer, instead_of=ruled)
                self.notify(answered.key, "title")
        except Exception as error:  # noqa: BLE001  nobody waits for a title
            log.warning("session %s got no title: %s", answered.key.id, type(error).__name__)
        try:
            await self._compact(answered, engine)
        except Conflict:
            return  # another server writes a summary, or the branch changed; the next turn tries again
        except Exception as error:  # noqa: BLE001  nobody waits for a summary, and nothing is lost without
            self._record_failure(answered.key, error)

    async def _compact(self, answered: AnsweredTurn, engine: Engine) -> None:
        key = answered.key
        if not await self.compactor.due(key, answered.share):
            return
        reason = f"{min(answered.share, 1):.0%} of the model's tokens were in use"
        if await self.compactor.compact(key, engine, reason):
            self._news[key] = Notice("info", SUMMARISED.format(reason=reason))
            self.notify(key, "compacted")

    def _record_failure(self, key: SessionKey, error: Exception) -> None:
        code = error.code if isinstance(error, AgentKernelError) else type(error).__name__
        log.warning("session %s could not be summarised: %s", key.id, code)
        if self.compactor.has_given_up(key):
            self._news[key] = Notice("warning", FAILED.format(times=self.compactor.policy.failures))

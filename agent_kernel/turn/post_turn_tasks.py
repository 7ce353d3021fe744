"""Runs background work after a committed turn: writes a title for a new session, and a summary when the model's context
fills up.

No request waits for this work. The session's next turn cancels it, and a failure has no other effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from agent_kernel.core.errors import AgentKernelError, Conflict
from agent_kernel.core.events import Notice
from agent_kernel.core.messages import shorten, user
from agent_kernel.core.protocols import Engine, EngineRequest, Sampling
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Session, SessionKey, SessionUpdate, Summary
from agent_kernel.core.shielded_await import cancel_tasks
from agent_kernel.turn.compaction import CompactionPolicy, Compactor
from agent_kernel.turn.model_reply import Reply
from agent_kernel.turn.turn_writer import TurnWriter

log = logging.getLogger(__name__)
SUMMARISED = "Earlier turns were summarised for the model ({reason}). You can undo the summary."
FAILED = "The earlier turns could not be summarised {times} times in a row: older ones are left out for the model. "
FAILED += "Compact the conversation to try again."
MAX_TITLE = 60
"""Maximum number of characters of a title. If the first message is longer, its beginning is used and ends with an
ellipsis."""
EXCERPT = 1_500
TASK = (
    "A conversation began like this:\n\nPERSON: {question}\n\nASSISTANT: {answer}\n\nWrite a title for it: 3 to 7 "
    "words in the language of the person, no quotation marks, nothing else."
)
T = TypeVar("T")


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
    def on_demand(cls, store: SessionStore, turn_writer: TurnWriter) -> PostTurnTasks:
        """Create an instance that writes a summary only when the user requests one, and takes titles from the first
        message."""
        return cls(store, Compactor(turn_writer, CompactionPolicy(auto=False)))

    def note_end(self, answered: AnsweredTurn, engine: Engine) -> None:
        if self.compactor.policy.auto or answered.key in self._ruled:
            self._errands.start(answered.key, self._follow(answered, engine))

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


# Makes titles of conversations from the beginning of the first message, or lets the model write a few words. A title
# that a person wrote is never replaced.


def title_from_text(text: str) -> str:
    """Return the beginning of a message on one line, cut between words."""
    words = " ".join(text.split())
    if len(words) <= MAX_TITLE:
        return words
    begun = words[: MAX_TITLE - 1]
    return (begun.rpartition(" ")[0] if " " in begun[MAX_TITLE // 2 :] else begun).rstrip(" ,;:.") + "…"


async def retitle(
    store: SessionStore, key: SessionKey, engine: Engine, question: str, answer: str, *, instead_of: str
) -> None:
    """Let the model write a title and store it in place of the title ``instead_of``. If the session has a different
    title by then, that title stays. Raises EngineError, StoreError."""
    prompt = TASK.format(question=shorten(question, EXCERPT), answer=shorten(answer, EXCERPT))
    sampling = Sampling(temperature=0.0, max_tokens=40)
    request = EngineRequest((user(prompt),), (), sampling, f"{key.namespace}/{key.id}#title")
    reply = Reply()
    await reply.read(engine, request)
    if title := _clean_title("".join(reply.text)):
        await store.describe(key, SessionUpdate(title=title, instead_of=instead_of))


def _clean_title(written: str) -> str:
    """Return the first non-empty line of what the model wrote, without characters that models put around titles, such
    as quotation marks."""
    around = " \t#*_\"'`“”„«»"
    lines = [line.strip(around).removeprefix("Title:").strip(around) for line in written.splitlines()]
    return title_from_text(next((line for line in lines if line), ""))


# Runs background work for sessions: one task at a time for each session. The session's next turn cancels the task.


class BackgroundTasks:
    def __init__(self) -> None:
        self._tasks: dict[SessionKey, asyncio.Task[Any]] = {}
        self._closed = False

    def start(self, key: SessionKey, work: Coroutine[Any, Any, T]) -> asyncio.Task[T] | None:
        """Start a task. Returns None, and closes ``work``, if another task of this session runs or after ``aclose``."""
        if self._closed or key in self._tasks:
            work.close()
            return None
        task = self._tasks[key] = asyncio.create_task(work, name=f"background work of session {key.id}")
        task.add_done_callback(lambda ended: self._remove(key, ended))
        return task

    async def run_next(self, key: SessionKey, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for the current task of the session, then run ``work`` and return its result. Raises Conflict if the
        current task or ``work`` is cancelled, because a turn begins or the server stops."""
        while (before := self._tasks.get(key)) is not None:
            await asyncio.wait([before])
            if before.cancelled():
                raise self._cancellation_error()
        task = self.start(key, work())
        if task is None:
            raise self._cancellation_error()
        await asyncio.wait([task])
        if task.cancelled():
            raise self._cancellation_error()
        return task.result()

    async def give_way(self, key: SessionKey) -> None:
        """Cancel the task of the session, if there is one, and wait for its end. Called when a turn of the session
        begins."""
        await cancel_tasks(self._tasks.get(key), reason="a turn began")

    async def aclose(self) -> None:
        self._closed = True
        await cancel_tasks(*self._tasks.values(), reason="the server stops")

    def _remove(self, key: SessionKey, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled():
            task.exception()  # retrieved here, so that asyncio does not log it for tasks that nobody awaits

    def _cancellation_error(self) -> Conflict:
        """Return the error that says why a task was cancelled. Only ``aclose`` and ``give_way`` cancel tasks."""
        if self._closed:
            return Conflict("The server is shutting down.")
        return Conflict(
            "The operation was cancelled because a turn of this session began.", hint="Try again after the turn."
        )

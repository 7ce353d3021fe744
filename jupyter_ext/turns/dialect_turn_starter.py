"""Starts a turn for a request of a dialect: finds the session of the conversation, and makes that session findable for
the next request."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.errors import SessionBusy
from agent_kernel.core.messages import Message
from agent_kernel.core.recent_entries import RecentEntries
from agent_kernel.core.session import UNLISTED, SessionKey, new_id
from agent_kernel.core.shielded_await import RunningTasks
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.permissions.gate import DEFAULTS
from agent_kernel.sessions import conversation_match, history_merge
from agent_kernel.tools.base.caller_tools import AWAITED
from agent_kernel.turn.server_runtime import Runtime
from jupyter_ext.auth.callers import Caller, subject
from jupyter_ext.turns.dialect_request import DialectRequest
from jupyter_ext.turns.ephemeral_sessions import EphemeralSessions, is_ephemeral
from jupyter_ext.turns.idempotency import StartedTurn
from jupyter_ext.turns.turn_starter import OpenedSession, TurnDescription, TurnStarter
from jupyter_ext.turns.turns import LiveTurn, Turns

ANSWERS = frozenset(DEFAULTS)
"""The kinds of approval that a client which follows the stream can answer, each by its name. Such a client may not know
approvals, so its silence counts as a refusal after ``approval_timeout_s``. The value ``*`` is not used here, because
the turn would then wait forever."""
RETURNED = 150
"""Number of items at the end of a turn that are searched for calls whose results the client still has to send."""
MOST = 2_000


@dataclass(frozen=True, slots=True)
class SessionMatch:
    """The session of a request. ``scope`` is a hash of the user, the model and the instructions; a later request with
    the same scope can find the conversation by its text. It is empty if requests name the session."""

    opened: OpenedSession
    scope: str = ""


class DialectTurnStarter:
    """Starts the turns of dialect requests in the sessions of their conversations. There is one instance for each
    server."""

    def __init__(
        self, runtime: Runtime, turns: Turns, starter: TurnStarter, ephemeral_sessions: EphemeralSessions
    ) -> None:
        self._runtime = runtime
        self._turns = turns
        self._starter = starter
        self._ephemeral_sessions = ephemeral_sessions
        self._ending = RunningTasks()
        self._keeping: dict[asyncio.Task[None], tuple[LiveTurn, str]] = {}
        self._pending_calls = PendingClientCalls()

    async def start(self, caller: Caller, dialect_request: DialectRequest, turn_id: str = "") -> StartedTurn:
        """Start the turn of a request. ``turn_id`` is an id that was reserved for it. Raises UnknownModel,
        Forbidden, SessionBusy, TooManyRequests, EngineBusy, FileNotFound, FileTooLarge, InvalidRequest."""
        await self._starter.admit(caller, dialect_request.name)
        dialect_request = dialect_request.with_dispatch() if self._runtime.dispatches else dialect_request
        match = await self._find_session(caller, dialect_request)
        turn = await self._start_or_restart(caller, match, dialect_request, turn_id)
        plain = not dialect_request.session and dialect_request.server_tools == ()
        if is_ephemeral(turn.spec.key.id):
            self._schedule_cleanup(turn, match.scope, keeps=not plain)
        return StartedTurn(turn, {"session": "" if plain and not dialect_request.continuable else turn.spec.key.id})

    def await_on_close(self, task: asyncio.Future[Any]) -> None:
        """Make ``aclose`` wait for this task."""
        self._ending.add(task)

    async def aclose(self) -> None:
        await self._ending.wait()

    async def _start_or_restart(
        self, caller: Caller, match: SessionMatch, dialect_request: DialectRequest, turn_id: str
    ) -> LiveTurn:
        """Start the turn in the session of ``match``. If that session is busy and was found by comparing texts, start
        the turn in a new session instead: another client may have sent the same text.

        Raises SessionBusy if the session that the client named is busy.
        """
        key = match.opened.key
        if dialect_request.session or not is_ephemeral(key.id):
            return await self._start_in(caller, match.opened, dialect_request, turn_id)
        if self._turns.find_unfinished(key) is None:
            with suppress(SessionBusy):
                return await self._start_in(caller, match.opened, dialect_request, turn_id)
        return await self._start_in(caller, self._open_ephemeral(caller), dialect_request, turn_id)

    async def _start_in(
        self, caller: Caller, opened: OpenedSession, dialect_request: DialectRequest, turn_id: str
    ) -> LiveTurn:
        if (
            dialect_request.own_messages
            and (session := await self._runtime.store.info(opened.key)) is not None
            and session.turns
        ):
            dialect_request = dataclasses.replace(
                dialect_request,
                request=dataclasses.replace(dialect_request.request, messages=dialect_request.own_messages),
            )
        described = TurnDescription(
            _final_request(dialect_request),
            model=dialect_request.name,
            files=dialect_request.files,
            queue=False,
            route=dialect_request.route,
        )
        begun = await self._starter.start_in(opened, caller, described, turn_id)
        assert isinstance(begun, StartedTurn), "a request of a dialect accepts no stored answer"
        return begun.turn

    async def _find_session(self, caller: Caller, dialect_request: DialectRequest) -> SessionMatch:
        """Return the session for a request: the session that it names; otherwise, where server tools may run, the
        session whose conversation it continues; otherwise a new one."""
        store = self._runtime.store
        if dialect_request.session or dialect_request.continuable:
            id = dialect_request.session or UNLISTED + new_id("session")
            return SessionMatch(await self._starter.open_session(caller, id, dialect_request.request.last_user_text))
        instructions, _ = history_merge.split_instructions(dialect_request.request.messages)
        scope = conversation_match.scope(subject(caller), dialect_request.name, instructions)
        if dialect_request.server_tools != ():
            await self._await_remembered(scope)
            waiting = self._pending_calls.find(caller.namespace, scope, dialect_request.request.messages)
            if waiting is not None and await store.info(waiting) is not None:
                return SessionMatch(OpenedSession(waiting), scope)
            messages = await self._runtime.turn_writer.clean(dialect_request.request.messages)
            match = await conversation_match.find_session(store, caller.namespace, scope, messages)
            if match is not None:
                return SessionMatch(OpenedSession(match), scope)
        return SessionMatch(self._open_ephemeral(caller), scope)

    def _open_ephemeral(self, caller: Caller) -> OpenedSession:
        return OpenedSession(self._ephemeral_sessions.new_key(caller.namespace), created=True)

    def _schedule_cleanup(self, turn: LiveTurn, scope: str, *, keeps: bool) -> None:
        after = self._remember(turn, scope) if keeps else self._forget(turn)
        task = asyncio.create_task(after, name=f"after {turn.id}")
        self.await_on_close(task)
        if keeps and scope:
            self._keeping[task] = (turn, scope)
            task.add_done_callback(self._keeping.pop)

    async def _await_remembered(self, scope: str) -> None:
        """Wait until the finished turns with this scope have been recorded, so that a client can continue a
        conversation as soon as it has received the answer."""
        ended = [task for task, (turn, other) in self._keeping.items() if other == scope and not turn.running]
        if ended:
            await asyncio.wait(ended)

    async def _remember(self, turn: LiveTurn, scope: str) -> None:
        assert turn.task is not None
        await asyncio.wait([turn.task])
        self._ephemeral_sessions.mark_used(turn.spec.key)
        if scope:
            store = self._runtime.store
            await conversation_match.remember_openings(store, turn.spec.key, scope)
            newest = await store.latest(turn.spec.key, RETURNED)
            self._pending_calls.add(turn.spec.key, scope, [item.message for item in newest])

    async def _forget(self, turn: LiveTurn) -> None:
        assert turn.task is not None
        await asyncio.wait([turn.task])
        await self._ephemeral_sessions.forget(turn.spec.key)


def _final_request(dialect_request: DialectRequest) -> TurnRequest:
    """Return the request with the tools and the number of rounds that the model name and the fields of the request
    allow.

    If the conversation that the client sends contains calls, ``history`` becomes ``replay``, so that the conversation
    is compared with the stored one, even if its only new messages are results of calls.
    """
    request, tools = dialect_request.request, dialect_request.server_tools
    rounds = 0 if tools == () else request.max_tool_rounds
    messages = history_merge.split_instructions(request.messages)[1]
    added = history_merge.first_added(messages)
    brings = 0 < added < len(messages) and bool(messages[added].calls)
    history = "replay" if brings and request.history == "auto" and not request.after else request.history
    answers = ANSWERS if dialect_request.streams else frozenset[str]()
    return dataclasses.replace(request, tools=tools, max_tool_rounds=rounds, history=history, answers=answers)


class PendingClientCalls:
    """The newest MOST tool calls that wait for a client's result, in memory. A client that names no session sends each
    result with the id of its call, which identifies the session, even before there is any answer text by which the
    conversation could be found. ``scope`` is the value that ``sessions.conversation_match.scope`` computes for the
    conversation."""

    def __init__(self) -> None:
        self._sessions = RecentEntries[tuple[str, str, str], SessionKey](MOST)

    def add(self, key: SessionKey, scope: str, messages: Iterable[Message]) -> None:
        """Add the calls of these messages that still wait for a result."""
        for message in messages:
            if message.role == "tool" and message.call_id and message.text == AWAITED:
                self._sessions[key.namespace, scope, message.call_id] = key

    def find(self, namespace: str, scope: str, messages: Sequence[Message]) -> SessionKey | None:
        """Return the session whose calls are answered by the results at the end of these messages."""
        for message in reversed(messages):
            if message.role == "assistant":
                return None
            if message.role == "tool" and (key := self._sessions.get((namespace, scope, message.call_id or ""))):
                return key
        return None

"""Start a turn for a request of a dialect: find its session, engine, tools and files."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.errors import SessionBusy
from agent_kernel.core.messages import Message
from agent_kernel.core.session import UNLISTED, SessionKey, check_id, new_id
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.permissions.policy import DEFAULTS
from agent_kernel.sessions import conversation_match, history_merge
from agent_kernel.turn.runtime import Runtime
from jupyter_ext.auth.callers import Caller, subject
from jupyter_ext.turns.access import Access
from jupyter_ext.turns.dialect_request import DialectRequest
from jupyter_ext.turns.ephemeral_sessions import EphemeralSessions, is_ephemeral
from jupyter_ext.turns.pending_client_calls import PendingClientCalls
from jupyter_ext.turns.turn_admission import OpenedSession, TurnAdmission
from jupyter_ext.turns.turn_input_files import TurnInputs
from jupyter_ext.turns.turns import LiveTurn, Turns, TurnSpec

ANSWERS = frozenset(DEFAULTS)
"""All kinds of approval by name. A client that follows the stream may not know approvals, so its silence counts as a
refusal after ``approval_timeout_s``; with ``*`` the turn would wait forever."""
RETURNED = 150
"""How many items at the end of a turn are searched for calls that were returned to the client."""
LOG_S = 30.0
"""How long the event log is kept after the end of a turn in a session that no client can name."""


@dataclass(frozen=True, slots=True)
class StartedTurn:
    """``session`` is the id to return to the client; empty if later requests of the client cannot refer to the session.
    ``replayed`` is true if an earlier request with the same idempotency key started the turn."""

    turn: LiveTurn
    session: str = ""
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class SessionMatch:
    """The session of a request, and the scope in which a later request can find its conversation. ``created``: the
    session was created for this request."""

    key: SessionKey
    scope: str = ""
    created: bool = False


class TurnStarter:
    """One instance for each server. ``start`` checks the limits, finds the session and starts the turn."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        turns: Turns,
        access: Access,
        inputs: TurnInputs,
        admission: TurnAdmission,
        ephemeral_sessions: EphemeralSessions,
    ) -> None:
        self._runtime = runtime
        self._turns = turns
        self._access = access
        self._inputs = inputs
        self._admission = admission
        self._ephemeral_sessions = ephemeral_sessions
        self._ending: set[asyncio.Future[Any]] = set()
        self._keeping: dict[asyncio.Task[None], tuple[LiveTurn, str]] = {}
        self._pending_calls = PendingClientCalls()

    async def start(self, caller: Caller, asked: DialectRequest, turn_id: str = "") -> StartedTurn:
        """Start the turn of a request. ``turn_id`` is an id that was reserved for it. Raises UnknownModel,
        Forbidden, SessionBusy, TooManyRequests, EngineBusy, FileNotFound, FileTooLarge, InvalidRequest."""
        await self._admission.admit(caller, asked.name)
        asked = asked.with_dispatch() if self._runtime.dispatches else asked
        found = await self._find_session(caller, asked)
        turn = await self._start_or_restart(caller, found, asked, turn_id)
        plain = not asked.session and asked.server_tools == ()
        if is_ephemeral(turn.spec.key.id):
            self._schedule_cleanup(turn, found.scope, keeps=not plain)
        return StartedTurn(turn, "" if plain and not asked.continuable else turn.spec.key.id)

    def await_on_close(self, task: asyncio.Future[Any]) -> None:
        """Make ``aclose`` wait for this task."""
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        if self._ending:
            await asyncio.wait(self._ending)

    async def _start_or_restart(
        self, caller: Caller, found: SessionMatch, asked: DialectRequest, turn_id: str
    ) -> LiveTurn:
        """Start the turn in the matched session, or in a new one if that session is busy.

        A conversation that was matched by its text may belong to another client that sent the same text, so a busy
        match is no error. A session that the client named is the one it means, so a busy one raises SessionBusy.
        """
        if asked.session or not is_ephemeral(found.key.id):
            return await self._start_in(caller, found, asked, turn_id)
        if self._turns.of_session(found.key) is None:
            with suppress(SessionBusy):
                return await self._start_in(caller, found, asked, turn_id)
        fresh = SessionMatch(self._ephemeral_sessions.new_key(caller.namespace), found.scope, created=True)
        return await self._start_in(caller, fresh, asked, turn_id)

    async def _start_in(self, caller: Caller, found: SessionMatch, asked: DialectRequest, turn_id: str) -> LiveTurn:
        async with self._admission.removed_if_refused(caller, OpenedSession(found.key, found.created)):
            return await self._turns.start(await self._turn_spec(caller, found.key, asked, turn_id), queue=False)

    async def _turn_spec(self, caller: Caller, key: SessionKey, asked: DialectRequest, turn_id: str) -> TurnSpec:
        """Return the spec of the turn, after its files were stored in the session."""
        if asked.own_messages and (here := await self._runtime.store.info(key)) is not None and here.turns:
            asked = dataclasses.replace(asked, request=dataclasses.replace(asked.request, messages=asked.own_messages))
        request = _final_request(asked)
        engine = await self._access.engine(caller, key, asked.name)
        inputs = (*request.inputs, *await self._inputs.add(caller, key, asked.files))
        return TurnSpec(
            key,
            dataclasses.replace(request, model=engine, inputs=inputs),
            started_by=caller.started_by,
            token=caller.token.id if caller.token else "",
            keep_s=LOG_S if is_ephemeral(key.id) else None,
            route=asked.route,
            id=turn_id,
        )

    async def _find_session(self, caller: Caller, asked: DialectRequest) -> SessionMatch:
        """Return the named session; else, where server tools may run, the session whose conversation the request
        continues; else a new one."""
        store = self._runtime.store
        if asked.session or asked.continuable:
            id = check_id(asked.session) if asked.session else UNLISTED + new_id("session")
            key = SessionKey(caller.namespace, id)
            made = await self._access.claim_id(caller, key.id)
            if made:
                await store.create(key)
            elif asked.session:
                await store.forget(key)
            return SessionMatch(key, created=made)
        scope = conversation_match.scope(subject(caller), asked.name, _instructions(asked.request.messages))
        if asked.server_tools != ():
            await self._await_remembered(scope)
            waiting = self._pending_calls.find(caller.namespace, scope, asked.request.messages)
            if waiting is not None and await store.info(waiting) is not None:
                return SessionMatch(waiting, scope)
            said = await self._runtime.ledger.clean(asked.request.messages)
            found = await conversation_match.find_session(store, caller.namespace, scope, said)
            if found is not None:
                return SessionMatch(found, scope)
        return SessionMatch(self._ephemeral_sessions.new_key(caller.namespace), scope, created=True)

    def _schedule_cleanup(self, turn: LiveTurn, scope: str, *, keeps: bool) -> None:
        after = self._remember(turn, scope) if keeps else self._forget(turn)
        task = asyncio.create_task(after, name=f"after {turn.id}")
        self.await_on_close(task)
        if keeps and scope:
            self._keeping[task] = (turn, scope)
            task.add_done_callback(self._keeping.pop)

    async def _await_remembered(self, scope: str) -> None:
        """Wait until the finished turns of this scope can be found: a client may continue as soon as it has the
        answer."""
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


def _final_request(asked: DialectRequest) -> TurnRequest:
    """Return the request with the tools and rounds that the model name and the request allow.

    A request whose history contains calls is compared with the stored conversation, even if its only new messages are
    results of calls.
    """
    request, tools = asked.request, asked.server_tools
    rounds = 0 if tools == () else request.max_tool_rounds
    messages = history_merge.split_instructions(request.messages)[1]
    added = history_merge.first_added(messages)
    brings = 0 < added < len(messages) and bool(messages[added].calls)
    history = "replay" if brings and request.history == "auto" and not request.after else request.history
    answers = ANSWERS if asked.streams else frozenset[str]()
    return dataclasses.replace(request, tools=tools, max_tool_rounds=rounds, history=history, answers=answers)


def _instructions(messages: Sequence[Message]) -> list[Message]:
    return history_merge.split_instructions(messages)[0]

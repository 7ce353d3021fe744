"""A request of a dialect becomes a turn: its session, engine, tools and files are found, and it is started."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.errors import SessionBusy
from agent_kernel.core.messages import Message
from agent_kernel.core.request import TurnRequest
from agent_kernel.core.session import UNLISTED, SessionKey, check_id, new_id
from agent_kernel.permissions.policy import DEFAULTS
from agent_kernel.sessions import conversation_match, history_merge
from agent_kernel.turn.runtime import Runtime
from jupyter_ext.auth.callers import Caller, subject
from jupyter_ext.turns.access import Access
from jupyter_ext.turns.dialect_request import Asked
from jupyter_ext.turns.ephemeral_sessions import Ephemeral, is_ephemeral
from jupyter_ext.turns.pending_client_calls import HandedOver
from jupyter_ext.turns.turn_admission import OpenedSession, TurnAdmission
from jupyter_ext.turns.turn_inputs import TurnInputs
from jupyter_ext.turns.turns import LiveTurn, Order, Turns

ANSWERS = frozenset(DEFAULTS)
"""Every kind, by name: a client that follows may know nothing of approvals, so its silence is no after
``approval_timeout_s``. ``*`` would wait for ever."""
RETURNED = 150
"""Items at the end of a turn among which the calls are that it returned to its client."""
LOG_S = 30.0
"""The log of a turn in a session that nobody can name stays so long after its end."""


@dataclass(frozen=True, slots=True)
class Call:
    """``session`` is the id to tell the client; empty: one that it can not name. ``again``: the turn had begun before,
    for the same request under the same key."""

    turn: LiveTurn
    session: str = ""
    again: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The session of a call, and the scope in which such a conversation is found again, where it is to be. ``made``:
    for this call."""

    key: SessionKey
    scope: str = ""
    made: bool = False


class Calls:
    """Of one server. ``begin`` admits, finds and starts; the turn then runs as any other does."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        turns: Turns,
        access: Access,
        inputs: TurnInputs,
        admission: TurnAdmission,
        ephemeral_sessions: Ephemeral,
    ) -> None:
        self._runtime = runtime
        self._turns = turns
        self._access = access
        self._inputs = inputs
        self._admission = admission
        self._ephemeral_sessions = ephemeral_sessions
        self._ending: set[asyncio.Future[Any]] = set()
        self._keeping: dict[asyncio.Task[None], tuple[LiveTurn, str]] = {}
        self._handed_over = HandedOver()

    async def begin(self, caller: Caller, asked: Asked, turn_id: str = "") -> Call:
        """``turn_id`` is one that was made for it. Raises UnknownModel, Forbidden, SessionBusy, TooManyRequests,
        EngineBusy, FileNotFound, FileTooLarge, InvalidRequest."""
        await self._admission.admit(caller, asked.name)
        asked = asked.dispatched() if self._runtime.dispatches else asked
        found = await self._session(caller, asked)
        turn = await self._started(caller, found, asked, turn_id)
        plain = not asked.session and asked.engaged == ()
        if is_ephemeral(turn.order.key.id):
            self._when_ended(turn, found.scope, keeps=not plain)
        return Call(turn, "" if plain and not asked.kept else turn.order.key.id)

    def also(self, task: asyncio.Future[Any]) -> None:
        """Is awaited when the server stops."""
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        if self._ending:
            await asyncio.wait(self._ending)

    async def _started(self, caller: Caller, found: Found, asked: Asked, turn_id: str) -> LiveTurn:
        """Of a conversation that is found by what it says somebody else may have the same: then it is begun anew. A
        session that the client named is the one it means."""
        if asked.session or not is_ephemeral(found.key.id):
            return await self._started_in(caller, found, asked, turn_id)
        if self._turns.of_session(found.key) is None:
            with suppress(SessionBusy):
                return await self._started_in(caller, found, asked, turn_id)
        fresh = Found(self._ephemeral_sessions.new(caller.namespace), found.scope, made=True)
        return await self._started_in(caller, fresh, asked, turn_id)

    async def _started_in(self, caller: Caller, found: Found, asked: Asked, turn_id: str) -> LiveTurn:
        async with self._admission.removed_if_refused(caller, OpenedSession(found.key, found.made)):
            return await self._turns.start(await self._order(caller, found.key, asked, turn_id), queue=False)

    async def _order(self, caller: Caller, key: SessionKey, asked: Asked, turn_id: str) -> Order:
        """With its files in the session."""
        if asked.spoken and (here := await self._runtime.store.info(key)) is not None and here.turns:
            asked = dataclasses.replace(asked, request=dataclasses.replace(asked.request, messages=asked.spoken))
        request = _engaged(asked)
        engine = await self._access.engine(caller, key, asked.name)
        inputs = (*request.inputs, *await self._inputs.bring(caller, key, asked.files))
        return Order(
            key,
            dataclasses.replace(request, model=engine, inputs=inputs),
            by=caller.by,
            token=caller.token.id if caller.token else "",
            keep_s=LOG_S if is_ephemeral(key.id) else None,
            route=asked.route,
            id=turn_id,
        )

    async def _session(self, caller: Caller, asked: Asked) -> Found:
        """The one that was named; else, where tools of the server may run, the one that the conversation continues;
        else a new one."""
        store = self._runtime.store
        if asked.session or asked.kept:
            id = check_id(asked.session) if asked.session else UNLISTED + new_id("session")
            key = SessionKey(caller.namespace, id)
            made = await self._access.claim_id(caller, key.id)
            if made:
                await store.create(key)
            elif asked.session:
                await store.forget(key)
            return Found(key, made=made)
        scope = conversation_match.scope(subject(caller), asked.name, _instructions(asked.request.messages))
        if asked.engaged != ():
            await self._kept(scope)
            waiting = self._handed_over.find(caller.namespace, scope, asked.request.messages)
            if waiting is not None and await store.info(waiting) is not None:
                return Found(waiting, scope)
            said = await self._runtime.ledger.clean(asked.request.messages)
            found = await conversation_match.find_session(store, caller.namespace, scope, said)
            if found is not None:
                return Found(found, scope)
        return Found(self._ephemeral_sessions.new(caller.namespace), scope, made=True)

    def _when_ended(self, turn: LiveTurn, scope: str, *, keeps: bool) -> None:
        after = self._keep(turn, scope) if keeps else self._forget(turn)
        task = asyncio.create_task(after, name=f"after {turn.id}")
        self.also(task)
        if keeps and scope:
            self._keeping[task] = (turn, scope)
            task.add_done_callback(self._keeping.pop)

    async def _kept(self, scope: str) -> None:
        """Who has an answer may go on at once: what was answered in this scope can be found from now on."""
        ended = [task for task, (turn, other) in self._keeping.items() if other == scope and not turn.running]
        if ended:
            await asyncio.wait(ended)

    async def _keep(self, turn: LiveTurn, scope: str) -> None:
        assert turn.task is not None
        await asyncio.wait([turn.task])
        self._ephemeral_sessions.keep(turn.order.key)
        if scope:
            store = self._runtime.store
            await conversation_match.remember_openings(store, turn.order.key, scope)
            newest = await store.latest(turn.order.key, RETURNED)
            self._handed_over.keep(turn.order.key, scope, [item.message for item in newest])

    async def _forget(self, turn: LiveTurn) -> None:
        assert turn.task is not None
        await asyncio.wait([turn.task])
        await self._ephemeral_sessions.forget(turn.order.key)


def _engaged(asked: Asked) -> TurnRequest:
    """Its tools, by what the name of the model and the request say; a conversation that is carried whole is compared
    with what is stored, also where it brings nothing but results."""
    request, tools = asked.request, asked.engaged
    rounds = 0 if tools == () else request.max_tool_rounds
    messages = history_merge.split_instructions(request.messages)[1]
    added = history_merge.first_added(messages)
    brings = 0 < added < len(messages) and bool(messages[added].calls)
    history = "replay" if brings and request.history == "auto" and not request.after else request.history
    answers = ANSWERS if asked.streams else frozenset[str]()
    return dataclasses.replace(request, tools=tools, max_tool_rounds=rounds, history=history, answers=answers)


def _instructions(messages: Sequence[Message]) -> list[Message]:
    return history_merge.split_instructions(messages)[0]

"""A request of a dialect becomes a turn: its session, engine, tools and files are found, and it is started."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_kernel.errors import AgentKernelError, SessionBusy
from agent_kernel.file_registry import FileRegistry
from agent_kernel.files import clean_name
from agent_kernel.incoming import Arrived
from agent_kernel.messages import Message
from agent_kernel.permissions.policy import DEFAULTS
from agent_kernel.request import TurnRequest
from agent_kernel.sessions import matching, reconcile
from agent_kernel.sessions.model import UNLISTED, SessionKey, new_id, valid_id
from jupyter_ext.callers import Caller, subject
from jupyter_ext.dialects.asked import Asked, Given
from jupyter_ext.ephemeral import is_ephemeral
from jupyter_ext.handed_over import HandedOver
from jupyter_ext.inputs import attach
from jupyter_ext.turns import LiveTurn, Order

if TYPE_CHECKING:
    from jupyter_ext.app import AgentKernel

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


class Calls:
    """Of one server. ``begin`` admits, finds and starts; the turn then runs as any other does."""

    def __init__(self, app: AgentKernel) -> None:
        self._app = app
        self._ending: set[asyncio.Future[Any]] = set()
        self._keeping: dict[asyncio.Task[None], tuple[LiveTurn, str]] = {}
        self._handed_over = HandedOver()

    async def begin(self, caller: Caller, asked: Asked, turn_id: str = "") -> Call:
        """``turn_id`` is one that was made for it. Raises UnknownModel, Forbidden, SessionBusy, TooManyRequests,
        EngineBusy, FileNotFound, FileTooLarge, InvalidRequest."""
        app, request = self._app, _engaged(asked)
        app.turns.admit()
        if asked.name and app.access.may_choose(caller, asked.name):
            app.runtime.engines.get(asked.name)  # before a session is made for it
        await app.turns.allow(caller.namespace, caller.token.id if caller.token else "")
        key, scope = await self._session(caller, asked)
        async with self._or_forgotten(key):
            if asked.spoken and (here := await app.runtime.store.info(key)) is not None and here.turns:
                request = dataclasses.replace(request, messages=asked.spoken)
            engine = await app.access.engine(caller, key, asked.name)
            inputs = [*request.inputs, *[await self._file(caller, key, given) for given in asked.files]]
            order = Order(
                key,
                dataclasses.replace(request, model=engine, inputs=tuple(inputs)),
                by=caller.by,
                token=caller.token.id if caller.token else "",
                keep_s=LOG_S if is_ephemeral(key.id) else None,
                route=asked.route,
                id=turn_id,
            )
            turn = await self._started(order)
        plain = not asked.session and asked.engaged == ()
        if is_ephemeral(turn.order.key.id):
            self._when_ended(turn, scope, keeps=not plain)
        return Call(turn, "" if plain and not asked.kept else turn.order.key.id)

    def also(self, task: asyncio.Future[Any]) -> None:
        """Is awaited when the server stops."""
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        if self._ending:
            await asyncio.wait(self._ending)

    @asynccontextmanager
    async def _or_forgotten(self, key: SessionKey) -> AsyncIterator[None]:
        """A session that was made for a call that is refused after all goes again."""
        try:
            yield
        except AgentKernelError:
            if is_ephemeral(key.id) and not self._app.ephemeral.knows(key):
                await self._app.ephemeral.forget(key)
            raise

    async def _session(self, caller: Caller, asked: Asked) -> tuple[SessionKey, str]:
        """The one that was named; else, where tools of the server may run, the one that the conversation continues;
        else a new one. With the scope in which such a conversation is found again, where it is to be."""
        store = self._app.runtime.store
        if asked.session or asked.kept:
            id = valid_id(asked.session) if asked.session else UNLISTED + new_id("session")
            key = SessionKey(caller.namespace, id)
            if await self._app.access.claim_id(caller, key.id):
                await store.create(key)
            elif asked.session:
                await store.forget(key)
            return key, ""
        scope = matching.scope(subject(caller), asked.name, _instructions(asked.request.messages))
        if asked.engaged != ():
            await self._kept(scope)
            waiting = self._handed_over.find(caller.namespace, scope, asked.request.messages)
            if waiting is not None and await store.info(waiting) is not None:
                return waiting, scope
            said = await self._app.runtime.ledger.clean(asked.request.messages)
            found = await matching.find(store, caller.namespace, scope, said)
            if found is not None:
                return found, scope
        return self._app.ephemeral.new(caller.namespace), scope

    async def _started(self, order: Order) -> LiveTurn:
        """Of a conversation that is found by what it says somebody else may have the same: then it is begun anew."""
        turns = self._app.turns
        try:
            return await turns.start(order, queue=False)
        except SessionBusy:
            if not is_ephemeral(order.key.id):
                raise
        key = self._app.ephemeral.new(order.key.namespace)
        return await turns.start(dataclasses.replace(order, key=key), queue=False)

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
        self._app.ephemeral.keep(turn.order.key)
        if scope:
            store = self._app.runtime.store
            await matching.remember(store, turn.order.key, scope)
            newest = await store.latest(turn.order.key, RETURNED)
            self._handed_over.keep(turn.order.key, scope, [item.message for item in newest])

    async def _forget(self, turn: LiveTurn) -> None:
        assert turn.task is not None
        await asyncio.wait([turn.task])
        await self._app.ephemeral.forget(turn.order.key)

    async def _file(self, caller: Caller, key: SessionKey, given: Given) -> str:
        """Its id, once it is a file of the session. A client that repeats a conversation repeats its files: one that is
        there by its name and bytes stays the same."""
        files, store = self._app.runtime.files, self._app.runtime.store
        await store.create(key)
        if given.id or files is None:
            await attach(self._app, caller, key, [given.id])
            return given.id
        arrived = await asyncio.to_thread(_arrived, files, given)
        for known in await files.files(key):
            if (known.hash, known.name) == (arrived.hash, clean_name(given.name)) and known.purpose == "user_data":
                arrived.remove()
                return known.id
        return (await files.receive(key, given.name, arrived, mime=given.mime)).id


def _arrived(files: FileRegistry, given: Given) -> Arrived:
    incoming = files.incoming()
    try:
        incoming.write(given.data)
        return incoming.arrived()
    finally:
        incoming.close()


def _engaged(asked: Asked) -> TurnRequest:
    """Its tools, by what the name of the model and the request say; a conversation that is carried whole is compared
    with what is stored, also where it brings nothing but results."""
    request, tools = asked.request, asked.engaged
    rounds = 0 if tools == () else request.max_tool_rounds
    messages = reconcile.split(request.messages)[1]
    added = reconcile.added_from(messages)
    brings = 0 < added < len(messages) and bool(messages[added].calls)
    history = "replay" if brings and request.history == "auto" and not request.after else request.history
    answers = ANSWERS if asked.streams else frozenset[str]()
    return dataclasses.replace(request, tools=tools, max_tool_rounds=rounds, history=history, answers=answers)


def _instructions(messages: Sequence[Message]) -> list[Message]:
    return reconcile.split(messages)[0]

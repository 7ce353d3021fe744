"""Turns in flight: started, queued, followed, cancelled. A turn is a task of this server and an event log; whoever
follows it may leave and come back, and never ends it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import AgentKernelError, Forbidden, SessionBusy
from agent_kernel.core.events import ContextBuilt, Emit, EventBody, Notice, Queued, TurnFinished, TurnState, TurnVersion
from agent_kernel.core.protocols import Engine
from agent_kernel.core.session import SessionKey, new_id
from agent_kernel.tools.base.notebook_access import NotebookAccess
from agent_kernel.turn.agent import TurnRequest
from agent_kernel.turn.runtime import Runtime
from jupyter_ext.quotas.limits import Entry, Limits
from jupyter_ext.turns.event_log import EventLog
from jupyter_ext.turns.turn_versions import ASKED, ASKED_PARTS, Versions, branch_name, fingerprint, fingerprints

KEEP_S = 600.0
"""The log of a turn stays this long after it was saved; later its events are made from the stored items."""
POLL_S = 0.5
"""How often a turn asks whether another server's turn of its session has ended."""
PULSE_S = 1.0
CANCEL_WITHIN_S = 5.0
NOT_BEGUN = {
    "replay": "This server shows stored answers; no model is asked.",
    "off": "Agents are switched off on this server.",
}
ELSEWHERE = "another server runs a turn of this session"
STOPPING = "the server was stopped"
"""Why a turn ends that its server ended with itself."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """What a client wants done. ``kernel`` is the kernel that the turn belongs to, ``by`` the one whose credential
    started it (both empty: a user's turn without a kernel). ``notice`` is told at its beginning. ``again``: a cell that
    has a turn already is asked again in the place of that turn, on a branch; ``replaces``: the turn itself, where it
    is known. ``keep_s``: how long the log of the turn stays after its end; None: as long as logs do. ``token``: the id
    of the scoped token that it came with. ``route``: by which it came, for the metrics. ``id`` of the turn, where one
    was made for it already."""

    key: SessionKey
    request: TurnRequest
    kernel: str = ""
    by: str = ""
    notebook_dir: Path | None = None
    notebook: NotebookAccess | None = None
    notice: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    again: bool = False
    replaces: str = ""
    keep_s: float | None = None
    token: str = ""
    route: str = "turns"
    id: str = ""


@dataclass(slots=True, eq=False)
class LiveTurn:
    """``my_place`` is set when no other turn of this server stands before it."""

    id: str
    order: Order
    log: EventLog
    entry: Entry | None = None
    created: float = field(default_factory=time.time)
    my_place: asyncio.Event = field(default_factory=asyncio.Event)
    admitted: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: SessionBusy | None = None
    stopping: str = ""
    task: asyncio.Task[None] | None = None
    heard: Callable[[LiveTurn, EventBody], None] = lambda turn, body: None

    @property
    def state(self) -> TurnState:
        return self.log.finished.state if self.log.finished else "open"

    @property
    def running(self) -> bool:
        return self.log.finished is None

    def announce(self, body: EventBody) -> None:
        self.admitted.set()
        self.log.append(body)
        self.heard(self, body)


class Turns:
    """``on_pulse`` is called now and then with the kernels that have a turn running, ``on_begin`` and
    ``on_end`` with each turn that did, ``on_body`` with all that one announces."""

    def __init__(
        self,
        runtime: Runtime,
        limits: Limits | None = None,
        *,
        on_pulse: Callable[[set[str]], None] = lambda kernels: None,
        on_begin: Callable[[LiveTurn], None] = lambda turn: None,
        on_end: Callable[[LiveTurn], None] = lambda turn: None,
        on_body: Callable[[LiveTurn, EventBody], None] = lambda turn, body: None,
        keep_s: float = KEEP_S,
        poll_s: float = POLL_S,
    ) -> None:
        self._runtime = runtime
        self._limits = limits
        self._versions = Versions(runtime.store)
        self._on_pulse = on_pulse
        self._on_begin = on_begin
        self._on_end = on_end
        self._on_body = on_body
        self._keep_s = keep_s
        self._poll_s = poll_s
        self._turns: dict[str, LiveTurn] = {}
        self._lines: dict[SessionKey, list[LiveTurn]] = {}
        self._pulse: asyncio.Task[None] | None = None
        self._closing = ""
        self._refusal: AgentKernelError | None = None

    def get(self, turn: str) -> LiveTurn | None:
        return self._turns.get(turn)

    @property
    def running(self) -> list[LiveTurn]:
        return [turn for line in self._lines.values() for turn in line if turn.running]

    def of_session(self, key: SessionKey) -> LiveTurn | None:
        """The first of its turns that is not over."""
        return next(iter(self.line(key)), None)

    def kernel_of(self, key: SessionKey) -> str:
        """Return the id of the kernel from which a turn of the session that is not over came, or an empty string."""
        return next((turn.order.kernel for turn in self.line(key) if turn.order.kernel), "")

    def line(self, key: SessionKey) -> list[LiveTurn]:
        """The turns of a session that are not over, in the order in which they run."""
        return [turn for turn in self._lines.get(key, ()) if turn.running]

    def admit(self) -> None:
        """Raises Forbidden in the modes in which no model is asked, and what ``refuse`` was given."""
        if self._refusal is not None:
            raise self._refusal
        if why := NOT_BEGUN.get(self._runtime.settings.mode):
            raise Forbidden(why, hint="The setting mode (AGENT_KERNEL_MODE) says so.")

    async def allow(self, namespace: str, token: str = "") -> None:
        """Before anything is made for a turn. Raises TooManyRequests where the user has begun enough."""
        if self._limits is not None:
            await self._limits.check(namespace, token)

    def refuse(self, why: AgentKernelError) -> None:
        """No turn is begun any more; those that run go on."""
        self._refusal = why

    @property
    def refusing(self) -> bool:
        return self._refusal is not None

    async def ended(self) -> None:
        """When no turn runs."""
        while tasks := [turn.task for turn in self.running if turn.task is not None]:
            await asyncio.wait(tasks)

    async def start(self, order: Order, *, queue: bool = True) -> LiveTurn:
        """One turn of a session runs at a time, the others wait in order. Raises SessionBusy if ``queue`` is off and
        this one would have to wait, Forbidden where turns are not begun, TooManyRequests where the user has begun
        enough, and EngineBusy."""
        self.admit()
        if self._limits is not None:
            await self._limits.check_budget(order.key.namespace, order.token)
        if not queue and (runs := self.of_session(order.key)):
            raise busy(runs.id)
        entry = self._entered(order)
        line = self._lines.setdefault(order.key, [])
        turn_id = order.id or new_id("turn")
        turn = LiveTurn(turn_id, order, EventLog(turn_id, order.key.id), entry, heard=self._on_body)
        if order.notice:
            turn.log.append(Notice("warning", order.notice))
        self._turns[turn.id] = turn
        line.append(turn)
        turn.task = asyncio.create_task(self._run(turn, queue), name=turn.id)
        turn.task.add_done_callback(partial(self._ended, turn))
        self._advance(order.key)
        self._on_begin(turn)
        if self._pulse is None:
            self._pulse = asyncio.create_task(self._keep_active(), name="activity of turns")
        if self._closing:
            self._stop(turn, self._closing)
        if not queue:
            await turn.admitted.wait()
            if turn.refusal:
                raise turn.refusal
        return turn

    def metered(self, engine: Engine, key: SessionKey, token: str = "", entry: Entry | None = None) -> Engine:
        """The engine as the user of the session may use it, in a turn (``entry``) or beside."""
        return engine if self._limits is None else self._limits.metered(engine, key.namespace, token, entry)

    def _entered(self, order: Order) -> Entry | None:
        """Counts the turn. Raises TooManyRequests, EngineBusy."""
        if self._limits is None:
            return None
        engine = self._runtime.engines.get(order.request.model)
        return self._limits.enter(order.key.namespace, order.token, engine)

    async def cancel(self, turn: LiveTurn, reason: str) -> TurnState:
        """Stops the turn, if it runs, and waits until it was saved; harmless on one that has ended."""
        self._stop(turn, reason)
        if turn.task is not None:
            await asyncio.wait([turn.task], timeout=CANCEL_WITHIN_S)
        return turn.state

    def cancel_kernel(self, kernel: str, reason: str) -> None:
        for turn in self.running:
            if turn.order.kernel == kernel:
                self._stop(turn, reason)

    async def aclose(self, reason: str = STOPPING) -> None:
        self._closing = reason
        self._runtime.approvals.stop()
        for turn in self.running:
            self._stop(turn, reason)
        tasks = [turn.task for turn in self._turns.values() if turn.task is not None]
        if self._pulse is not None:
            self._pulse.cancel()
            tasks.append(self._pulse)
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, turn: LiveTurn, queue: bool) -> None:
        await turn.my_place.wait()
        order, told = turn.order, False
        model = self._runtime.engines.get(order.request.model).info().model
        asked, parts = fingerprint(order.request, model), fingerprints(order.request, model)
        name = branch_name(self._runtime.ledger.redactor.text(order.request.prompt))
        while True:
            agent = self._runtime.agent(
                order.key,
                order.request,
                notebook_dir=order.notebook_dir,
                trusted=await self._trusted(order.notebook_dir),
                notebook=order.notebook,
                metadata={**order.metadata, ASKED: asked, ASKED_PARTS: parts},
                through=lambda engine: self.metered(engine, order.key, order.token, turn.entry),
            )
            cell = order.request.cell if order.again else ""
            try:
                async with self._versions.opened(order.key, cell, asked, order.replaces, name) as version:
                    await agent.turn(order.request, _with_version(turn.announce, version), turn.id)
                return
            except SessionBusy as refusal:
                if not queue:
                    turn.refusal = refusal
                    raise
            if not told:
                told = True
                turn.announce(Queued(1, ELSEWHERE))
            await asyncio.sleep(self._poll_s)

    async def _trusted(self, folder: Path | None) -> bool:
        return folder is not None and await asyncio.to_thread(self._runtime.trust.trusts, folder)

    def _stop(self, turn: LiveTurn, reason: str) -> None:
        """Once: a second cancellation would hit the turn while it saves what it has."""
        if turn.task is not None and turn.running and not turn.stopping:
            turn.stopping = reason
            turn.task.cancel(reason)

    def _ended(self, turn: LiveTurn, task: asyncio.Task[None]) -> None:
        """Whatever the task ended with, the log ends too; the agent has done that for every turn that was opened."""
        if task.cancelled():
            turn.announce(TurnFinished("cancelled", turn.stopping or "stopped", 0, {}))
        elif error := task.exception():
            turn.announce(failed(error))
        line = self._lines[turn.order.key]
        line.remove(turn)
        if line:
            self._advance(turn.order.key)
        else:
            del self._lines[turn.order.key]
        if turn.entry is not None:
            turn.entry.undo() if turn.refusal else turn.entry.leave()
        turn.admitted.set()
        if turn.refusal or self._closing:
            self._turns.pop(turn.id, None)
        else:
            keep_s = self._keep_s if turn.order.keep_s is None else turn.order.keep_s
            asyncio.get_running_loop().call_later(keep_s, self._turns.pop, turn.id, None)
        self._on_end(turn)

    def _advance(self, key: SessionKey) -> None:
        """The first of the line may run; the others hear how many stand before them."""
        line = self._lines[key]
        line[0].my_place.set()
        for index, turn in enumerate(line):
            position = sum(other.running for other in line[:index])
            if position and turn.running and not turn.my_place.is_set():
                turn.announce(Queued(position, "another turn of this session is running"))

    async def _keep_active(self) -> None:
        while running := self.running:
            self._on_pulse({turn.order.kernel for turn in running if turn.order.kernel})
            await asyncio.sleep(PULSE_S)
        self._pulse = None


def _with_version(announce: Emit, version: TurnVersion | None) -> Emit:
    """Tells of the version once the turn has saved what was asked, not before."""
    waiting = [version] if version else []

    def emit(body: EventBody) -> None:
        if waiting and isinstance(body, ContextBuilt):
            announce(waiting.pop())
        announce(body)

    return emit


def busy(turn: str) -> SessionBusy:
    return SessionBusy(
        "Another turn of this session is running.", hint="Wait for it, or stop it.", details={"turn": turn}
    )


def failed(error: BaseException) -> TurnFinished:
    """The end of a turn that could not even be opened."""
    if not isinstance(error, AgentKernelError):
        log.error("a turn could not be started", exc_info=error)
        error = AgentKernelError(f"{type(error).__name__}: {error}", hint="The log of the Jupyter server has more.")
    return TurnFinished("failed", error.message, 0, {}, error.to_json())

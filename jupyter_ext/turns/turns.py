"""Starts, queues, follows and cancels turns. A turn is a task of this server with an event log. Readers may leave and
return; a reader that leaves never ends a turn."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from agent_kernel.core.errors import AgentKernelError, Forbidden, SessionBusy
from agent_kernel.core.events import ContextBuilt, Emit, EventBody, Notice, Queued, TurnFinished, TurnState, TurnVersion
from agent_kernel.core.protocols import Engine
from agent_kernel.core.session import SessionKey, new_id
from agent_kernel.tools.base.notebook_access import NotebookAccess
from agent_kernel.turn.agent import TurnRequest
from agent_kernel.turn.server_runtime import Runtime
from jupyter_ext.quotas.limits import CountedTurn, Limits
from jupyter_ext.turns.event_log import EventLog
from jupyter_ext.turns.turn_versions import ASKED, ASKED_PARTS, TurnVersions, branch_name, fingerprint, fingerprints

KEEP_S = 600.0
"""Seconds for which the log of a turn is kept after its end. Later its events are rebuilt from the stored items."""
MAX_KEPT, MAX_KEPT_BYTES = 1_000, 64 << 20
"""Limits for the logs of ended turns: their number, and their bytes. If a limit is exceeded, the oldest logs are
deleted before KEEP_S seconds have passed."""
POLL_S = 0.5
"""Seconds between two checks of a waiting turn whether another server's turn of its session has ended."""
DELTAS_PER_S = 20
"""Maximum number of deltas that a turn sends in a second. Those that arrive faster are joined."""
PULSE_S = 1.0
CANCEL_WITHIN_S = 5.0
NOT_BEGUN = {
    "replay": "This server shows stored answers; no model is asked.",
    "off": "Agents are switched off on this server.",
}
ELSEWHERE = "another server runs a turn of this session"
STOPPING = "the server was stopped"
"""The reason recorded for turns that end because the server stops."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TurnSpec:
    """Everything needed to run a turn, after access checks.

    ``kernel`` is the kernel that the turn belongs to; ``started_by`` the kernel or token whose credential started it
    (both are empty for a user's turn without a kernel). ``notice`` is emitted at the beginning. ``new_version``: if the
    cell already has a turn, ask it again on a new branch; ``replaces`` names that turn where it is known. ``keep_s``:
    how long the event log is kept after the end; None for the default. ``token`` is the id of the API token with which
    the request came; empty if it came without one. ``route`` is a metrics label. ``id`` is the turn's id if one was
    reserved.
    """

    key: SessionKey
    request: TurnRequest
    kernel: str = ""
    started_by: str = ""
    notebook_dir: Path | None = None
    notebook: NotebookAccess | None = None
    notice: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    new_version: bool = False
    replaces: str = ""
    keep_s: float | None = None
    token: str = ""
    route: str = "turns"
    id: str = ""


class TurnOwner(Protocol):
    """The interface to another server that runs a turn."""

    async def command(self, action: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a command to the server (``turn_control.py``), and return the result. Raises that server's error, and
        ServerUnreachable if it does not answer.
        """


@dataclass(slots=True, eq=False)
class LiveTurn:
    """A turn that runs or ended recently. ``is_first`` is set once every earlier turn of its session on this server has
    ended. ``owner`` is the other server that runs the turn, if it does not run here; ``log`` is then a copy. After the
    end, the request in ``spec`` has no messages and media."""

    id: str
    spec: TurnSpec
    log: EventLog
    entry: CountedTurn | None = None
    created: float = field(default_factory=time.time)
    is_first: asyncio.Event = field(default_factory=asyncio.Event)
    admitted: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: SessionBusy | None = None
    stopping: str = ""
    task: asyncio.Task[None] | None = None
    on_body: Callable[[LiveTurn, EventBody], None] = lambda turn, body: None
    owner: TurnOwner | None = None

    @property
    def state(self) -> TurnState:
        return self.log.finished.state if self.log.finished else "open"

    @property
    def running(self) -> bool:
        return self.log.finished is None

    def announce(self, body: EventBody) -> None:
        self.admitted.set()
        self.log.append(body)
        self.on_body(self, body)


class Turns:
    """The turns of this server.

    ``on_pulse`` is called every PULSE_S seconds with the kernels that have a running turn. ``on_begin`` and ``on_end``
    are called with each turn when it begins and ends, and ``on_body`` with the body of each of its events.
    """

    def __init__(
        self,
        runtime: Runtime,
        limits: Limits,
        *,
        on_pulse: Callable[[set[str]], None] = lambda kernels: None,
        on_begin: Callable[[LiveTurn], None] = lambda turn: None,
        on_end: Callable[[LiveTurn], None] = lambda turn: None,
        on_body: Callable[[LiveTurn, EventBody], None] = lambda turn, body: None,
    ) -> None:
        self._runtime = runtime
        self._limits = limits
        self._versions = TurnVersions(runtime.store)
        self._on_pulse = on_pulse
        self._on_begin = on_begin
        self._on_end = on_end
        self._on_body = on_body
        self._turns: dict[str, LiveTurn] = {}
        self._ended: dict[str, LiveTurn] = {}
        self._ended_bytes = 0
        self._lines: dict[SessionKey, list[LiveTurn]] = {}
        self._pulse: asyncio.Task[None] | None = None
        self._closing = ""
        self._refusal: AgentKernelError | None = None

    def get(self, turn: str) -> LiveTurn | None:
        return self._turns.get(turn)

    @property
    def running(self) -> list[LiveTurn]:
        return [turn for line in self._lines.values() for turn in line if turn.running]

    def find_unfinished(self, key: SessionKey) -> LiveTurn | None:
        """Return the first unfinished turn of the session."""
        return next(iter(self.line(key)), None)

    def kernel_of(self, key: SessionKey) -> str:
        """Return the id of the kernel that started an unfinished turn of the session, or an empty string."""
        return next((turn.spec.kernel for turn in self.line(key) if turn.spec.kernel), "")

    def line(self, key: SessionKey) -> list[LiveTurn]:
        """Return the unfinished turns of a session in the order in which they run."""
        return [turn for turn in self._lines.get(key, ()) if turn.running]

    def check_accepting(self) -> None:
        """Raise an error if this server starts no new turns: Forbidden if the server's mode runs no model, or the error
        that was passed to ``stop_accepting``."""
        if self._refusal is not None:
            raise self._refusal
        if why := NOT_BEGUN.get(self._runtime.settings.mode):
            raise Forbidden(why, hint="The setting mode (AGENT_KERNEL_MODE) allows no turns here.")

    async def check_limits(self, namespace: str, token: str = "") -> None:
        """Check the user's limits before anything is created for a turn. Raises TooManyRequests, BudgetSpent."""
        await self._limits.check(namespace, token)

    def stop_accepting(self, why: AgentKernelError) -> None:
        """Refuse new turns from now on by raising ``why``. Running turns continue."""
        self._refusal = why

    @property
    def is_refusing(self) -> bool:
        return self._refusal is not None

    async def wait_until_idle(self) -> None:
        """Wait until no turn runs."""
        while tasks := [turn.task for turn in self.running if turn.task is not None]:
            await asyncio.wait(tasks)

    async def start(self, order: TurnSpec, *, queue: bool = True) -> LiveTurn:
        """Start a turn. One turn of a session runs at a time; the others wait in order.

        Raises SessionBusy if ``queue`` is False and the turn would have to wait, Forbidden where turns are not
        accepted, TooManyRequests and BudgetSpent at the user's limits, and EngineBusy.
        """
        self.check_accepting()
        await self._limits.check_budget(order.key.namespace, order.token)
        self._check_free(order.key, queue)
        engine = self._runtime.engines.get(order.request.model)
        start = await self._limits.count_start(order.key.namespace, order.token)
        try:
            self._check_free(order.key, queue)  # checked again, because another turn may have started meanwhile
            entry = self._limits.enter(engine, start)
        except AgentKernelError:
            start.undo()
            raise
        line = self._lines.setdefault(order.key, [])
        turn_id = order.id or new_id("turn")
        turn = LiveTurn(turn_id, order, EventLog(turn_id, order.key.id), entry, on_body=self._on_body)
        if order.notice:
            turn.log.append(Notice("warning", order.notice))
        self._turns[turn.id] = turn
        line.append(turn)
        # The context of the request refers to its handler, whose body would stay in memory as long as the log.
        context = contextvars.Context()
        turn.task = asyncio.create_task(self._run(turn, queue), name=turn.id, context=context)
        turn.task.add_done_callback(partial(self._on_task_done, turn), context=context)
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

    def _check_free(self, key: SessionKey, queue: bool) -> None:
        """Raise SessionBusy for a turn that would have to wait for another one of its session, and may not."""
        if not queue and (runs := self.find_unfinished(key)):
            raise session_busy(runs.id)

    def meter(self, engine: Engine, key: SessionKey, token: str = "", entry: CountedTurn | None = None) -> Engine:
        """Return the engine wrapped with the limits of the session's user. ``entry`` is the counted turn for which the
        engine is used; None outside of a turn."""
        return self._limits.meter(engine, key.namespace, token, entry)

    async def cancel(self, turn: LiveTurn, reason: str) -> TurnState:
        """Cancel the turn if it runs, and wait until it is saved. Does nothing for a turn that has ended. Raises
        ServerUnreachable if the turn runs on another server, which does not answer."""
        if turn.owner is not None:
            state: TurnState = (await turn.owner.command("cancel", {"reason": reason}))["state"]
            return state
        self._stop(turn, reason)
        if turn.task is not None:
            await asyncio.wait([turn.task], timeout=CANCEL_WITHIN_S)
        return turn.state

    def cancel_kernel(self, kernel: str, reason: str) -> None:
        for turn in self.running:
            if turn.spec.kernel == kernel:
                self._stop(turn, reason)

    async def aclose(self) -> None:
        self._closing = STOPPING
        self._runtime.approvals.stop()
        for turn in self.running:
            self._stop(turn, STOPPING)
        tasks = [turn.task for turn in self._turns.values() if turn.task is not None]
        if self._pulse is not None:
            self._pulse.cancel()
            tasks.append(self._pulse)
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, turn: LiveTurn, queue: bool) -> None:
        await turn.is_first.wait()
        order, announced = turn.spec, False
        model = self._runtime.engines.get(order.request.model).info().model
        request, parts = fingerprint(order.request, model), fingerprints(order.request, model)
        name = branch_name(self._runtime.turn_writer.redactor.text(order.request.prompt))
        while True:
            agent = self._runtime.agent(
                order.key,
                order.request,
                notebook_dir=order.notebook_dir,
                trusted=await self._is_trusted(order.notebook_dir),
                notebook=order.notebook,
                metadata={**order.metadata, ASKED: request, ASKED_PARTS: parts},
                through=lambda engine: self.meter(engine, order.key, order.token, turn.entry),
            )
            cell = order.request.cell if order.new_version else ""
            try:
                async with self._versions.open_branch(order.key, cell, request, order.replaces, name) as version:
                    emit = _with_version(turn.announce, version)
                    await agent.turn(order.request, emit, turn.id, deltas_per_s=DELTAS_PER_S)
                return
            except SessionBusy as refusal:
                if not queue:
                    turn.refusal = refusal
                    raise
            if not announced:
                announced = True
                turn.announce(Queued(1, ELSEWHERE))
            await asyncio.sleep(POLL_S)

    async def _is_trusted(self, folder: Path | None) -> bool:
        return folder is not None and await asyncio.to_thread(self._runtime.trust.trusts, folder)

    def _stop(self, turn: LiveTurn, reason: str) -> None:
        """Cancel the task once only: a second cancellation would interrupt the turn while it saves its items."""
        if turn.task is not None and turn.running and not turn.stopping:
            turn.stopping = reason
            turn.task.cancel(reason)

    def _on_task_done(self, turn: LiveTurn, task: asyncio.Task[None]) -> None:
        """End the log, however the task ended. For a turn that was opened, the agent has already ended it."""
        if task.cancelled():
            turn.announce(TurnFinished("cancelled", turn.stopping or "stopped", 0, {}))
        elif error := task.exception():
            turn.announce(failed_event(error))
        line = self._lines[turn.spec.key]
        line.remove(turn)
        if line:
            self._advance(turn.spec.key)
        else:
            del self._lines[turn.spec.key]
        turn.spec = replace(turn.spec, request=replace(turn.spec.request, messages=(), media=()))
        if turn.entry is not None:
            turn.entry.undo() if turn.refusal else turn.entry.leave()
        turn.admitted.set()
        if turn.refusal or self._closing:
            self._turns.pop(turn.id, None)
        else:
            keep_s = KEEP_S if turn.spec.keep_s is None else turn.spec.keep_s
            self._keep_ended(turn)
            asyncio.get_running_loop().call_later(keep_s, self._forget, turn.id)
        self._on_end(turn)

    def _keep_ended(self, turn: LiveTurn) -> None:
        """Keep the log of a turn that has ended, and forget the oldest ones above the limits."""
        self._ended[turn.id] = turn
        self._ended_bytes += turn.log.size
        while len(self._ended) > MAX_KEPT or (self._ended_bytes > MAX_KEPT_BYTES and len(self._ended) > 1):
            self._forget(next(iter(self._ended)))

    def _forget(self, turn_id: str) -> None:
        self._turns.pop(turn_id, None)
        if (ended := self._ended.pop(turn_id, None)) is not None:
            self._ended_bytes -= ended.log.size

    def _advance(self, key: SessionKey) -> None:
        """Let the first unfinished turn of the session run, and emit to each of the others its new position in the
        queue."""
        line = self._lines[key]
        line[0].is_first.set()
        for index, turn in enumerate(line):
            position = sum(other.running for other in line[:index])
            if position and turn.running and not turn.is_first.is_set():
                turn.announce(Queued(position, "another turn of this session is running"))

    async def _keep_active(self) -> None:
        while running := self.running:
            self._on_pulse({turn.spec.kernel for turn in running if turn.spec.kernel})
            await asyncio.sleep(PULSE_S)
        self._pulse = None


def _with_version(announce: Emit, version: TurnVersion | None) -> Emit:
    """Return a function like ``announce`` that emits the event ``version`` directly before the ContextBuilt event,
    because the turn has saved its request by then."""
    waiting = [version] if version else []

    def emit(body: EventBody) -> None:
        if waiting and isinstance(body, ContextBuilt):
            announce(waiting.pop())
        announce(body)

    return emit


def session_busy(turn: str) -> SessionBusy:
    return SessionBusy(
        "Another turn of this session is running.", hint="Wait for it, or stop it.", details={"turn": turn}
    )


def failed_event(error: BaseException) -> TurnFinished:
    """Return the last event of a turn that could not be opened."""
    if not isinstance(error, AgentKernelError):
        log.error("a turn could not be started", exc_info=error)
        error = AgentKernelError(
            f"{type(error).__name__}: {error}", hint="The log of the Jupyter server contains the error."
        )
    fault = error.to_json()
    return TurnFinished("failed", fault["message"], 0, {}, fault)

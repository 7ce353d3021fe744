"""The sandbox of a server: one jailed process per session that runs code, some waiting warm, the oldest going first.

Knows which session has which process and what became of it; how a process is jailed and driven is ``process``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent_kernel.errors import AgentKernelError, SandboxUnavailable
from agent_kernel.protocols import RunResult, Work
from agent_kernel.sandbox import credentials, view
from agent_kernel.sandbox.jail import Plan, Spec, missing_platform
from agent_kernel.sandbox.policy import REQUIRED, WANTED, SandboxPolicy
from agent_kernel.sandbox.process import JailedProcess, StopReason, unavailable
from agent_kernel.sessions.model import SessionKey

SELF_CHECK = "import subprocess\nopen('check', 'w').write('1')\nopen('check').read()"
RESTARTED = "Python was started again for this session ({why}): variables are gone, files in the work directory remain."


DEFAULT = SandboxPolicy()


def _quiet(stream: str, text: str) -> None: ...


@dataclass(slots=True, eq=False)
class Place:
    """A session's place in the pool."""

    workdir: Path
    uid: int
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    process: JailedProcess | None = None
    lost: str = ""
    used: float = 0.0
    timer: asyncio.TimerHandle | None = None
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What the throw-away processes showed: how far the jail goes here, or why there is none."""

    plan: Plan | None
    layers: Mapping[str, Mapping[str, Any]]
    reason: str = ""


class LinuxSandbox:
    """The ``Sandbox`` for Linux. Work directories are ``work_root/<hash of namespace and id>``; ``hidden`` paths are
    never visible to code, wherever they lie. ``plans``: how far the jail may go, best first; None = as far as the
    system allows. Constructing it does no I/O."""

    def __init__(
        self,
        work_root: Path,
        policy: SandboxPolicy = DEFAULT,
        interpreter: Path | None = None,
        hidden: Sequence[Path] = (),
        plans: Sequence[Plan] | None = None,
    ) -> None:
        self.policy = policy
        self._plans = plans
        self._work_root = Path(os.path.abspath(work_root))
        self._interpreter = Path(interpreter or sys.executable)
        self._hidden = [str(path) for path in (self._work_root, *hidden)]
        self._places: dict[SessionKey, Place] = {}
        self._warm: list[JailedProcess] = []
        self._found: asyncio.Task[Found] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stops: set[asyncio.Future[StopReason]] = set()
        self._most = policy.max_sessions or max(4, _memory_gb())
        self._running = asyncio.Semaphore(self._most)
        self._filling = asyncio.Lock()
        self._closing = False

    def workdir(self, session: SessionKey) -> Path:
        """Where the session's code writes; it may not exist yet."""
        return self._work_root / _digest(session)

    async def run(
        self,
        session: SessionKey,
        work: Work | str,
        *,
        on_output: Callable[[str, str], None] = _quiet,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
    ) -> RunResult:
        asked = Work(work) if isinstance(work, str) else work
        stop: asyncio.Future[StopReason] = asyncio.get_running_loop().create_future()
        self._stops.add(stop)
        task = self._spawn(self._run_in_place(session, asked, stop, on_output=on_output, read=read))
        task.add_done_callback(lambda done: self._stops.discard(stop))
        try:
            # Whoever waits may go away at once; the run is interrupted and seen to its end, so that the worker is
            # idle or dead when the session's next run begins.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not stop.done():
                stop.set_result("interrupted")
            raise

    async def report(self) -> Mapping[str, Mapping[str, Any]]:
        """Finds out once, in throw-away processes, what is possible here: name -> {required, active, detail}."""
        return (await self._probed()).layers

    async def warm(self) -> None:
        """Starts the waiting processes now instead of after the first run. Does nothing where there is no sandbox."""
        if (await self._probed()).plan is not None:
            await self._fill()

    async def reset(self, session: SessionKey) -> None:
        """Ends the session's process once it is idle; the next run begins a new one."""
        place = self._places.get(session)
        if place is not None:
            async with place.lock:
                await self._end(place, "it was reset")

    async def close(self, session: SessionKey, *, remove: bool = False) -> None:
        """Ends the session's process; with ``remove`` its work directory goes too."""
        place = self._places.pop(session, None)
        if place is not None:
            place.closed = True
            await self._end(place, "the session was closed")
        if remove:
            await asyncio.to_thread(shutil.rmtree, self.workdir(session), ignore_errors=True)

    async def aclose(self) -> None:
        """No process and no task is left."""
        self._closing = True
        for stop in self._stops:
            if not stop.done():
                stop.set_result("interrupted")
        for place in self._places.values():
            if place.process is not None:
                await place.process.kill("the sandbox was closed")
        if self._found is not None:
            await asyncio.gather(self._found, return_exceptions=True)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for place in self._places.values():
            await self._end(place, "")
        for process in self._warm:
            await process.kill("the sandbox was closed")
        self._warm.clear()
        self._places.clear()

    # ------------------------------------------------------------------------------------------------ a run

    async def _run_in_place(
        self,
        session: SessionKey,
        work: Work,
        stop: asyncio.Future[StopReason],
        *,
        on_output: Callable[[str, str], None],
        read: Sequence[Path],
    ) -> RunResult:
        if self._closing:
            raise SandboxUnavailable("The sandbox is closed.")
        place = self._places.get(session)
        if place is None:
            place = self._places[session] = Place(self.workdir(session), credentials.uid_of(_digest(session)))
            if place.workdir.exists():
                place.lost = RESTARTED.format(why="it belongs to an earlier life of the server")
        async with place.lock, self._running:
            process = await self._process_of(place, read)
            result = await process.run(
                work.code, timeout_s=work.timeout_s, stop=stop, on_output=on_output, workdir=str(place.workdir)
            )
            lost, place.lost = place.lost, ""
            if process.ended:
                await self._end(place, process.ended)
            self._touch(place)
        # Only now: a start beside the run would slow it down on a small machine.
        if len(self._warm) < self.policy.warm:
            self._spawn(self._fill())
        return replace(result, lost=lost)

    async def _process_of(self, place: Place, read: Sequence[Path]) -> JailedProcess:
        if place.process is not None and place.process.ended:
            await self._end(place, place.process.ended)
        if place.closed:
            raise SandboxUnavailable("The session was closed.")
        if place.process is None:
            found = await self._probed()
            if found.plan is None:
                raise unavailable(found.reason, dict(found.layers))
            await self._make_room()
            process = await self._take()
            await process.enter(self._spec(found.plan, place.workdir, place.uid, read))
            place.process = process
        return place.process

    def _spec(self, plan: Plan, workdir: Path, uid: int, read: Sequence[Path]) -> Spec:
        return Spec(
            plan=plan,
            workdir=str(workdir),
            uid=uid,
            limits=self.policy.limits(),
            required=self.policy.required,
            read=[os.path.abspath(path) for path in read],
            hidden=[*self._hidden, *view.hidden_by_default()],
        )

    async def _make_room(self) -> None:
        """The least recently used session that is not running gives its process up."""
        while len(live := [place for place in self._places.values() if place.process is not None]) >= self._most:
            idle = [place for place in live if not place.lock.locked()]
            if not idle:
                return
            await self._end(min(idle, key=lambda place: place.used), "its memory was needed for other sessions")

    def _touch(self, place: Place) -> None:
        place.used = time.monotonic()
        if place.timer is not None:
            place.timer.cancel()
        if place.process is not None and not self._closing:
            loop = asyncio.get_running_loop()
            place.timer = loop.call_later(self.policy.idle_s, lambda: self._spawn(self._reap(place)))

    async def _reap(self, place: Place) -> None:
        async with place.lock:
            if time.monotonic() - place.used >= self.policy.idle_s:
                await self._end(place, "it was not used for a long time")

    async def _end(self, place: Place, why: str) -> None:
        process, place.process = place.process, None
        if place.timer is not None:
            place.timer.cancel()
            place.timer = None
        if process is not None:
            await process.kill(why)
            place.lost = RESTARTED.format(why=why)

    # ------------------------------------------------------------------------------------------------ processes

    async def _take(self) -> JailedProcess:
        while self._warm:
            process = self._warm.pop()
            if not process.ended:
                return process
            await process.kill("")
        return await JailedProcess.start(self._interpreter, self.policy)

    async def _fill(self) -> None:
        async with self._filling:
            while len(self._warm) < self.policy.warm and not self._closing:
                self._warm.append(await JailedProcess.start(self._interpreter, self.policy))

    async def _probed(self) -> Found:
        if self._found is None:
            self._found = asyncio.create_task(self._probe())
        return await asyncio.shield(self._found)

    async def _probe(self) -> Found:
        reason = missing_platform()
        if reason:
            return Found(None, {"platform": _layer("platform", reason)}, reason)
        tried: list[str] = []
        layers: Mapping[str, Mapping[str, Any]] = {}
        for plan in self._plans or Plan.candidates(root=os.geteuid() == 0):
            problem, layers = await self._try(plan, layers)
            if not problem:
                return Found(plan, _with_reasons(layers, tried))
            tried.append(problem)
        return Found(None, _with_reasons(layers, tried), "; ".join(dict.fromkeys(tried)))

    async def _try(
        self, plan: Plan, layers: Mapping[str, Mapping[str, Any]]
    ) -> tuple[str, Mapping[str, Mapping[str, Any]]]:
        """(what went wrong or "", the layers as far as they are known)."""
        workdir = self._work_root / f"probe-{os.getpid()}-{id(self):x}"
        stop: asyncio.Future[StopReason] = asyncio.get_running_loop().create_future()
        process = None
        try:
            self._work_root.mkdir(mode=0o700, parents=True, exist_ok=True)
            process = await JailedProcess.start(self._interpreter, self.policy)
            layers = await process.enter(self._spec(plan, workdir, credentials.FIRST_UID, ()))
            result = await process.run(SELF_CHECK, timeout_s=30.0, stop=stop)
            return ("" if result.value == "'1'" else f"a first run failed: {result.error}"), layers
        except AgentKernelError as error:
            return error.message, error.details.get("layers") or layers
        except OSError as error:
            return str(error), layers
        finally:
            if process is not None:
                await process.kill("")
            await asyncio.to_thread(shutil.rmtree, workdir, ignore_errors=True)

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen by whoever awaits the task, if anybody still does


def _digest(session: SessionKey) -> str:
    return hashlib.sha256(json.dumps([session.namespace, session.id]).encode()).hexdigest()[:32]


def _layer(name: str, detail: str) -> dict[str, Any]:
    return {"required": name in REQUIRED or name == "platform", "active": False, "detail": detail}


def _with_reasons(layers: Mapping[str, Mapping[str, Any]], tried: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Every layer by name, and beside those not in force why a better jail was not possible."""
    report = {name: dict(layers.get(name, _layer(name, "not reached"))) for name in (*REQUIRED, *WANTED)}
    for layer in report.values():
        if not layer["active"] and tried:
            layer["detail"] = f"{layer['detail']} ({'; '.join(dict.fromkeys(tried))})"
    return report


def _memory_gb() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    except (ValueError, OSError, AttributeError):
        return 4

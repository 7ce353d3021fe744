"""Runs the sandbox of a server: one jailed process for each session that runs code, and warm spare processes, which
have started but belong to no session. If the pool is full, the process of the least recently used idle session ends
first.

This module records which session uses which process. ``jail_factory.py`` creates jails, and ``jailed_process.py``
controls them.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import json
import keyword
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import InvalidRequest, NotFound, SandboxUnavailable
from agent_kernel.core.protocols import RunResult, Variable, VariableInfo, Work
from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host import orphan_workdirs
from agent_kernel.sandbox.host.jail_factory import JailFactory, JailRequest
from agent_kernel.sandbox.host.jailed_process import JailedProcess
from agent_kernel.sandbox.host.orphan_workdirs import OrphanWorkdir
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.sandbox_run import SandboxRun, StopReason
from agent_kernel.sandbox.jail import privileges, visible_paths
from agent_kernel.sandbox.jail.jail import IsolationPlan
from agent_kernel.sandbox.worker import variable_transfer

ASK_S = 30.0
"""Time limit in seconds for copying a variable or listing the variables."""
EARLIER_LIFE = "it ran before the server was restarted"
RESTARTED = "Python was started again for this session ({why}): variables are gone, files in the work directory remain."


DEFAULT = SandboxPolicy()
_REFUSAL = re.compile(
    r"^(?:PermissionError|FileNotFoundError|NotADirectoryError|OSError): \[Errno (?:1|2|13|20|30)\] [^:\n]*: "
    r"('(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")",
    re.MULTILINE,
)
MAX_PATH = 4096
NOBODYS = ("/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/run")


def _quiet(stream: str, text: str) -> None: ...


@dataclass(slots=True, eq=False)
class SessionSlot:
    """The pool's data about one session: the work directory, the user id, and the process if one runs. ``lost`` says
    why the session's last process ended; ``used`` is the time of the last use."""

    workdir: Path
    uid: int
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    process: JailedProcess | None = None
    paths: tuple[tuple[Path, ...], tuple[Path, ...]] = ((), ())
    """The paths that the session's process may read, and those that it may write, besides the work directory."""
    lost: str = ""
    used: float = 0.0
    timer: asyncio.TimerHandle | None = None
    closed: bool = False


class LinuxSandbox:
    """The implementation of ``Sandbox`` for Linux. Work directories are ``work_root/<hash of namespace and id>``. Code
    never sees the paths in ``hidden``. ``plans`` are isolation plans to try, strictest first; None tries all that the
    system supports. The constructor does no I/O."""

    def __init__(
        self,
        work_root: Path,
        policy: SandboxPolicy = DEFAULT,
        interpreter: Path | None = None,
        *,
        hidden: Sequence[Path] = (),
        plans: Sequence[IsolationPlan] | None = None,
        egress: EgressPolicy | None = None,
    ) -> None:
        self.policy = policy
        self.kernel_of: Callable[[SessionKey], str] = lambda session: ""
        """Returns the path of the interpreter of the session's kernel, or "" if there is none. A new process of the
        session uses this interpreter."""
        self._work_root = Path(os.path.abspath(work_root))
        self._hidden = [*visible_paths.hidden_by_default(), str(self._work_root), *map(str, hidden)]
        self._jails = JailFactory(policy, self._work_root, interpreter, hidden=hidden, plans=plans, egress=egress)
        self._places: dict[SessionKey, SessionSlot] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stops: set[asyncio.Future[StopReason]] = set()
        self._most = policy.max_sessions or max(4, _memory_gb())
        self._running = asyncio.Semaphore(self._most)
        self._closing = False

    def workdir(self, session: SessionKey) -> Path:
        """Return the work directory of the session. It may not exist yet."""
        return self._work_root / _digest(session)

    def _mark(self, workdir: Path) -> Path:
        """Return the path of the marker file, which exists if the session has had variables. It lies beside the work
        directory, where code cannot reach it."""
        return workdir.with_suffix(".ran")

    async def run(
        self,
        session: SessionKey,
        work: Work | str,
        *,
        on_output: Callable[[str, str], None] = _quiet,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
    ) -> RunResult:
        job = Work(work) if isinstance(work, str) else work
        _check_given(job.given)
        stop: asyncio.Future[StopReason] = asyncio.get_running_loop().create_future()
        self._stops.add(stop)
        task = self._spawn(self._run_in_place(session, job, stop, on_output=on_output, read=read, write=write))
        task.add_done_callback(lambda done: self._stops.discard(stop))
        try:
            # The caller may be cancelled at any time. The run is interrupted then, but followed to its end, so that the
            # worker is idle or dead when the session's next run starts.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not stop.done():
                stop.set_result("interrupted")
            raise

    async def leftovers(self) -> list[OrphanWorkdir]:
        """Return work directories with the sessions they were created for; sessions may no longer exist."""
        return await asyncio.to_thread(orphan_workdirs.find_orphans, self._work_root)

    @property
    def processes(self) -> int:
        """The number of sessions that have a process now."""
        return sum(place.process is not None for place in self._places.values())

    async def report(self) -> Mapping[str, Mapping[str, Any]]:
        """Return a mapping from the name of each layer to {required, active, detail}. The first call tests the layers
        in processes that are started for this purpose."""
        return (await self._jails.support()).layers

    async def warm(self) -> None:
        """Start the warm processes now instead of after the first run. Does nothing where there is no sandbox."""
        await self._jails.fill()

    async def take(self, session: SessionKey, name: str) -> Variable:
        _check_name(name)
        run = await self._ask(session, name)
        if run is not None and run.variable is not None:
            return run.variable
        done = run.done.result() if run is not None and run.done.done() else None
        if done is not None and done.error:
            raise InvalidRequest(done.error)
        raise NotFound(f"The sandbox of this session has no variable {name}.", hint=self.lost(session))

    async def variables(self, session: SessionKey) -> Sequence[VariableInfo]:
        run = await self._ask(session)
        return run.listed if run is not None else ()

    async def _ask(self, session: SessionKey, name: str = "") -> SandboxRun | None:
        """Ask the session's process for the variable ``name``, or for the list of its variables. Returns None if the
        session has no process."""
        place = self._places.get(session)
        if place is None:
            return None
        async with place.lock:
            process = place.process
            if process is None or process.ended or self._closing:
                return None
            run = await process.ask(ASK_S, variable=name)
            await self._finish_use(place)
        return run

    def lost(self, session: SessionKey) -> str:
        place = self._places.get(session)
        if place is not None:
            ended = place.process.ended if place.process is not None else ""
            return RESTARTED.format(why=ended) if ended else place.lost
        return RESTARTED.format(why=EARLIER_LIFE) if self._mark(self.workdir(session)).exists() else ""

    def has_run(self, session: SessionKey) -> bool:
        return self._mark(self.workdir(session)).exists()

    async def reset(self, session: SessionKey) -> None:
        """End the session's process once it is idle. The next run starts a new process."""
        place = self._places.get(session)
        if place is not None:
            async with place.lock:
                await self._end(place, "it was reset")
        self._mark(self.workdir(session)).unlink(missing_ok=True)

    async def close(self, session: SessionKey, *, remove: bool = False) -> None:
        """End the session's process; with ``remove``, delete its work directory too."""
        place = self._places.pop(session, None)
        if place is not None:
            place.closed = True
            await self._end(place, "the session was closed")
        if remove:
            await asyncio.to_thread(orphan_workdirs.forget, self.workdir(session))

    async def aclose(self) -> None:
        """End the processes of all sessions, the warm processes and all background tasks."""
        self._closing = True
        for stop in self._stops:
            if not stop.done():
                stop.set_result("interrupted")
        for place in self._places.values():
            if place.process is not None:
                await place.process.kill("the sandbox was closed")
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for place in self._places.values():
            await self._end(place, "")
        await self._jails.aclose()
        self._places.clear()

    # ------------------------------------------------------------------------------------------------ runs

    async def _run_in_place(
        self,
        session: SessionKey,
        work: Work,
        stop: asyncio.Future[StopReason],
        *,
        on_output: Callable[[str, str], None],
        read: Sequence[Path],
        write: Sequence[Path],
    ) -> RunResult:
        if self._closing:
            raise SandboxUnavailable("The sandbox is closed, because the server is stopping.")
        place = self._places.get(session)
        if place is None:
            place = self._places[session] = SessionSlot(self.workdir(session), privileges.uid_of(_digest(session)))
            if self._mark(place.workdir).exists():
                place.lost = RESTARTED.format(why=EARLIER_LIFE)
        async with place.lock, self._running:
            process = await self._process_of(session, place, (_unique_paths(read), _unique_paths(write)))
            result = await process.run(work, stop=stop, on_output=on_output, workdir=str(place.workdir))
            lost, place.lost = place.lost, ""
            await self._finish_use(place)
        # This is done after the run, because starting a process would slow down the run on a small machine.
        self._spawn(self._jails.fill())
        return self._with_place_facts(replace(result, lost=lost), process, place)

    def _with_place_facts(self, result: RunResult, process: JailedProcess, place: SessionSlot) -> RunResult:
        """Return the result with data about the process added: missing layers, a denied path, and the interpreter."""
        less = self.policy.less(process.layers)
        excluded = [*self._hidden, *(str(path) for path in (*place.paths[0], *place.paths[1]))]
        path = find_denied_path(result.error or "", str(place.workdir), excluded)
        if path and self.policy.mode != "off":
            result = replace(result, denied=path, error=f"{result.error}\n{advice(path)}")
        interpreter = str(process.layers.get("interpreter", {}).get("detail", ""))
        return replace(result, less=less, interpreter=interpreter)

    async def _process_of(
        self, session: SessionKey, place: SessionSlot, paths: tuple[tuple[Path, ...], tuple[Path, ...]]
    ) -> JailedProcess:
        if place.process is not None and place.process.ended:
            await self._end(place, place.process.ended)
        if place.process is not None and place.paths != paths:
            await self._end(place, "what it may read or write has changed")
        if place.closed:
            raise SandboxUnavailable("The code did not run, because its session was closed.")
        if place.process is None:
            await self._make_room()
            cell = JailRequest(place.workdir, place.uid, *paths, interpreter=self.kernel_of(session))
            place.process, place.paths = await self._jails.jail(cell), paths
            orphan_workdirs.write_note(place.workdir, session)
            self._mark(place.workdir).touch(mode=0o600)
        return place.process

    async def _make_room(self) -> None:
        """End the process of the least recently used idle session if the pool is full."""
        while len(live := [place for place in self._places.values() if place.process is not None]) >= self._most:
            idle = [place for place in live if not place.lock.locked()]
            if not idle:
                return
            await self._end(min(idle, key=lambda place: place.used), "its memory was needed for other sessions")

    async def _finish_use(self, place: SessionSlot) -> None:
        if place.process is not None and place.process.ended:
            await self._end(place, place.process.ended)
        self._touch(place)

    def _touch(self, place: SessionSlot) -> None:
        place.used = time.monotonic()
        if place.timer is not None:
            place.timer.cancel()
        if place.process is not None and not self._closing:
            loop = asyncio.get_running_loop()
            place.timer = loop.call_later(self.policy.idle_s, lambda: self._spawn(self._reap(place)))

    async def _reap(self, place: SessionSlot) -> None:
        async with place.lock:
            if time.monotonic() - place.used >= self.policy.idle_s:
                await self._end(place, "it was not used for a long time")

    async def _end(self, place: SessionSlot, why: str) -> None:
        process, place.process = place.process, None
        if place.timer is not None:
            place.timer.cancel()
            place.timer = None
        if process is not None:
            await process.kill(why)
            place.lost = RESTARTED.format(why=why)

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieve the exception, so that asyncio does not log it as never retrieved


def _unique_paths(paths: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(sorted(set(paths)))


def _check_given(variables: Sequence[Variable]) -> None:
    """Validate variables for the sandbox. Raises InvalidRequest for an invalid name, or if the variables are too large
    together."""
    for copied in variables:
        _check_name(copied.name)
    if sum(len(variable.data) for variable in variables) > variable_transfer.MAX_BYTES:
        raise InvalidRequest(
            f"The variables for the sandbox have more than {variable_transfer.MAX_BYTES >> 20} MB together.",
            hint="Pass fewer or smaller variables, or write them to a file beside the notebook.",
        )


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
        raise InvalidRequest(f"{name!r} is not a valid variable name.")


def _digest(session: SessionKey) -> str:
    return hashlib.sha256(json.dumps([session.namespace, session.id]).encode()).hexdigest()[:32]


def _memory_gb() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    except (ValueError, OSError, AttributeError):
        return 4


# Finds the file to which access was denied from the error of the code, so that the user can be offered to allow it.


def find_denied_path(error: str, workdir: str, hidden: Sequence[str]) -> str:
    """Return the last absolute path whose access ``error`` reports as denied, or "" if there is none or the user may
    not allow it. ``hidden`` are paths that are never allowed.

    Does not check whether the file exists, because the code must not learn that. The code can write any text as its
    error, so the text is not trusted."""
    denied = ""
    for match in _REFUSAL.finditer(error):
        try:
            path = str(ast.literal_eval(match[1]))
        except (ValueError, SyntaxError):
            continue
        if path.startswith("/") and len(path) <= MAX_PATH and path.isprintable():
            denied = os.path.normpath(path)
    beyond = (workdir, *NOBODYS, *hidden)
    return (
        ""
        if denied == "/" or any(denied == place or denied.startswith(place.rstrip("/") + "/") for place in beyond)
        else denied
    )


def advice(path: str) -> str:
    return (
        f"{path} is outside of what the sandbox of this session may see or change. A person can allow it: for this "
        f"conversation when asked, for all by the setting sandbox_read or sandbox_write."
    )

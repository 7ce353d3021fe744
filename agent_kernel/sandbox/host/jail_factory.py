"""Creates jails. Finds out once how much isolation this system supports, keeps processes warm, and turns one into the
jail of a session.

``pool.py`` records which session uses which process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import AgentKernelError, SandboxUnavailable
from agent_kernel.core.net.guard import Guard
from agent_kernel.core.protocols import Work
from agent_kernel.sandbox.host import sandbox_profiles
from agent_kernel.sandbox.host.cgroup import Cgroups
from agent_kernel.sandbox.host.jail_resources import JailResources
from agent_kernel.sandbox.host.jailed_process import JailedProcess, unavailable
from agent_kernel.sandbox.host.policy import LAYERS, OFF, REQUIRED, SandboxPolicy
from agent_kernel.sandbox.host.proxy import ProxyPolicy
from agent_kernel.sandbox.host.sandbox_run import StopReason
from agent_kernel.sandbox.jail import privileges, visible_paths
from agent_kernel.sandbox.jail.jail import IsolationPlan, JailSpec, missing_platform

SELF_CHECK = "import subprocess\nopen('check', 'w').write('1')\nopen('check').read()"
OLDEST = (3, 11)
"""Oldest Python version in which the worker runs; it applies to the environment of a kernel whose interpreter the
session uses."""
VERSION_S = 20.0
PROBE_LEFT_S = 3600.0


@dataclass(frozen=True, slots=True)
class JailSupport:
    """The result of testing this system. ``plan`` is the strictest isolation plan that works; if none works, it is None
    and ``reason`` says why. ``layers`` maps each layer to {required, active, detail}."""

    plan: IsolationPlan | None
    layers: Mapping[str, Mapping[str, Any]]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JailRequest:
    """The requirements of a session for its jail: the work directory, the user id, and additional paths to read and
    write. ``interpreter`` is the interpreter of the session's kernel, or "" for the server's own interpreter."""

    workdir: Path
    uid: int
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    interpreter: str = ""


class JailFactory:
    """Creates jails and keeps processes warm. ``plans`` are the isolation plans to try, strictest first; None derives
    them from policy and system. The constructor does no I/O."""

    def __init__(
        self,
        policy: SandboxPolicy,
        work_root: Path,
        interpreter: Path | None = None,
        *,
        hidden: Sequence[Path] = (),
        plans: Sequence[IsolationPlan] | None = None,
        egress: EgressPolicy | None = None,
    ) -> None:
        self.policy = policy
        self.interpreter = Path(interpreter or sys.executable)
        self._work_root = work_root
        self._hidden = [str(path) for path in (work_root, *hidden)]
        self._plans = plans
        self._reach = (
            ProxyPolicy(Guard(policy.hosts, ports=None), egress or EgressPolicy()) if policy.network == "full" else None
        )
        self._cgroups: Cgroups | None = None
        self._support: asyncio.Task[JailSupport] | None = None
        self._tools: list[str] | None = None
        self._warm: list[JailedProcess] = []
        self._filling = asyncio.Lock()
        self._versions: dict[str, bool] = {}
        self._closing = False

    async def support(self) -> JailSupport:
        """Return how much isolation this system supports. The first call tests it, which starts processes."""
        if self._support is None:
            self._support = asyncio.create_task(self._probe())
        return await asyncio.shield(self._support)

    async def jail(self, cell: JailRequest) -> JailedProcess:
        """Create the jail of a session. Raises SandboxUnavailable."""
        support_here = await self.support()
        if support_here.plan is None:
            raise unavailable(support_here.reason, dict(support_here.layers))
        if cell.interpreter and await self._serves(cell.interpreter):
            process = await self._start(Path(cell.interpreter))
            try:
                return await self._enter(process, support_here.plan, cell, Path(cell.interpreter))
            except SandboxUnavailable:
                self._versions[cell.interpreter] = False  # for example, the session's user cannot read it
        process = await self._take()
        return await self._enter(process, support_here.plan, cell, self.interpreter)

    async def fill(self) -> None:
        """Start processes until the configured number of warm processes (started, but without a session) is ready. Does
        nothing if this system supports no sandbox."""
        if len(self._warm) >= self.policy.warm or (await self.support()).plan is None:
            return
        async with self._filling:
            while len(self._warm) < self.policy.warm and not self._closing:
                self._warm.append(await self._start(self.interpreter))

    async def aclose(self) -> None:
        self._closing = True
        if self._support is not None:
            await asyncio.gather(self._support, return_exceptions=True)
        async with self._filling:
            for process in self._warm:
                await process.kill("the sandbox was closed")
            self._warm.clear()

    # ------------------------------------------------------------------------------------------------ creating one jail

    async def _start(self, interpreter: Path) -> JailedProcess:
        if self._cgroups is None:
            self._cgroups = Cgroups.detect()
            self._cgroups.sweep()
        return await JailedProcess.start(interpreter, self.policy, JailResources(self._cgroups, self._reach))

    async def _take(self) -> JailedProcess:
        while self._warm:
            process = self._warm.pop()
            if not process.ended:
                return process
            await process.kill("")
        return await self._start(self.interpreter)

    async def _enter(
        self, process: JailedProcess, plan: IsolationPlan, cell: JailRequest, interpreter: Path
    ) -> JailedProcess:
        layers = await process.enter(self._spec(plan, cell))
        whose = (
            "the kernel's"
            if cell.interpreter and _is_same_interpreter(str(interpreter), cell.interpreter)
            else "the server's"
        )
        layers["interpreter"] = {"required": False, "active": True, "detail": f"{interpreter} ({whose})"}
        return process

    def _spec(self, plan: IsolationPlan, cell: JailRequest) -> JailSpec:
        hidden = [*self._hidden, *visible_paths.hidden_by_default()]
        if self._tools is None:  # computed once, because this examines dozens of directories
            self._tools = sandbox_profiles.readable(self.policy, hidden)
        return JailSpec(
            plan=plan,
            workdir=str(cell.workdir),
            uid=cell.uid,
            limits=self.policy.limits(),
            required=() if plan.namespaces == "off" else self.policy.required,
            read=[os.path.abspath(path) for path in cell.read],
            write=[*self.policy.write, *(os.path.abspath(path) for path in cell.write)],
            tools=self._tools,
            hidden=hidden,
            network=self.policy.network,
            env=dict(self.policy.env),
        )

    async def _serves(self, interpreter: str) -> bool:
        """Return True if a process of this interpreter can become a jail: the interpreter starts, and its version is at
        least OLDEST. Return False for the server's own interpreter, for which there are warm processes."""
        if _is_same_interpreter(interpreter, str(self.interpreter)):
            return False  # this is the server's own interpreter, for which there are warm processes
        if interpreter not in self._versions:
            self._versions[interpreter] = await _version(interpreter) >= OLDEST
        return self._versions[interpreter]

    # ----------------------------------------------------------------------------------------------- testing the system

    async def _probe(self) -> JailSupport:
        reason = missing_platform()
        if reason:
            return JailSupport(None, {"platform": _layer("platform", reason)}, reason)
        tried: list[str] = []
        layers: Mapping[str, Mapping[str, Any]] = {}
        for plan in self._plans or IsolationPlan.candidates(root=os.geteuid() == 0, off=self.policy.mode == "off"):
            problem, layers = await self._try(plan, layers)
            if not problem:
                return JailSupport(plan, self._report(plan, layers, tried))
            tried.append(problem)
        return JailSupport(None, _with_reasons(layers, tried), "; ".join(dict.fromkeys(tried)))

    def _report(
        self, plan: IsolationPlan, layers: Mapping[str, Mapping[str, Any]], tried: Sequence[str]
    ) -> dict[str, Any]:
        if plan.namespaces == "off":
            isolation = {"required": False, "active": False, "detail": OFF}
            return {"isolation": isolation} | {name: dict(layer) for name, layer in layers.items()}
        return _with_reasons(layers, tried)

    async def _try(
        self, plan: IsolationPlan, layers: Mapping[str, Mapping[str, Any]]
    ) -> tuple[str, Mapping[str, Mapping[str, Any]]]:
        """Test one plan by running code in a jail. Returns (the reason why the plan does not work, or "" if it works;
        the layers of the jail). ``layers`` are returned if the jail reported none."""
        workdir = self._work_root / f"probe-{os.getpid()}-{id(self):x}"
        stop: asyncio.Future[StopReason] = asyncio.get_running_loop().create_future()
        process = None
        try:
            self._work_root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if plan.drop:
                # With this mode, each session's user can reach its own directory but cannot list the others.
                self._work_root.chmod(0o711)
            await asyncio.to_thread(remove_old_probes, self._work_root)
            process = await self._start(self.interpreter)
            await self._enter(process, plan, JailRequest(workdir, privileges.FIRST_UID), self.interpreter)
            layers = process.layers
            result = await process.run(Work(SELF_CHECK, timeout_s=30.0), stop=stop)
            if result.value == "'1'":
                return "", layers
            *_, cause = (result.error or "").splitlines() or [""]
            return f"a first run failed: {cause}", layers
        except AgentKernelError as error:
            return error.details.get("reason", error.message), error.details.get("layers") or layers
        except OSError as error:
            return f"{error.filename}: {error.strerror}" if error.filename else str(error), layers
        finally:
            if process is not None:
                await process.kill("")
            await asyncio.to_thread(shutil.rmtree, workdir, ignore_errors=True)


def remove_old_probes(work_root: Path) -> None:
    """Remove the directories of tests whose process was killed. A running test is much younger than PROBE_LEFT_S."""
    for probe in work_root.glob("probe-*"):
        with suppress(OSError):
            if time.time() - probe.stat().st_mtime > PROBE_LEFT_S:
                shutil.rmtree(probe)


async def _version(interpreter: str) -> tuple[int, ...]:
    """Return the interpreter's version, such as (3, 12), or () if it does not answer within VERSION_S."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        async with asyncio.timeout(VERSION_S):
            pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
            process = await asyncio.create_subprocess_exec(
                interpreter, "-I", "-S", "-c", code, stdin=null, stdout=pipe, stderr=null
            )
            try:
                output, _ = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
        return tuple(int(word) for word in output.split())
    except (OSError, TimeoutError, ValueError):
        return ()


def _is_same_interpreter(first: str, second: str) -> bool:
    """Return True if both paths are the same interpreter of the same environment. Comparing the files alone is not
    enough, because several environments may share one binary."""
    prefixes = [os.path.dirname(os.path.abspath(path)) for path in (first, second)]
    return prefixes[0] == prefixes[1] and os.path.realpath(first) == os.path.realpath(second)


def _layer(name: str, detail: str) -> dict[str, Any]:
    return {"required": name in REQUIRED or name == "platform", "active": False, "detail": detail}


def _with_reasons(layers: Mapping[str, Mapping[str, Any]], tried: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return every layer by name. If layers are not in force, the entry ``isolation`` names them and says why stricter
    plans failed."""
    report = {name: dict(layers.get(name, _layer(name, "not reached"))) for name in LAYERS}
    lacking = [name for name, layer in report.items() if not layer["active"]]
    if lacking and tried:
        detail = f"without {', '.join(lacking)}: {'; '.join(dict.fromkeys(tried))}"
        report["isolation"] = {"required": False, "active": False, "detail": detail}
    return report | {name: dict(layer) for name, layer in layers.items() if name not in report}

"""Tests that no process of the code survives, whichever process is killed: with and without namespaces."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host.cgroup import Cgroups
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.sandbox.jail.jail import IsolationPlan
from tests.processes import Process, descendants, survivors
from tests.sandbox.attacks import possible
from tests.sandbox.conftest import Make

if sys.platform != "linux":
    pytest.skip("the sandbox needs Linux", allow_module_level=True)

KEY = SessionKey("local", "orphans")
DETACH = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp('sleep', ['sleep', '86400'])
    os._exit(0)
os.wait()
if os.fork() == 0:
    time.sleep(86400)
time.sleep(0.2)
"""
PLANS = [*asyncio.run(possible()), IsolationPlan("off", False)]
WITHIN_S = 20.0
SERVER = f"""
import asyncio, sys
from pathlib import Path
from agent_kernel.sandbox.jail.jail import IsolationPlan
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.core.session import SessionKey
async def main():
    plan = IsolationPlan(sys.argv[2], sys.argv[3] == "True")
    sandbox = LinuxSandbox(Path(sys.argv[1]), SandboxPolicy(warm=1), plans=[plan])
    if (await sandbox.report()).get("limits", {{}}).get("active"):
        await sandbox.run(SessionKey("local", "x"), {DETACH!r})
        print("ready", flush=True)
        await asyncio.sleep(3600)
asyncio.run(main())
"""


async def family(sandbox: LinuxSandbox) -> list[Process]:
    """Return all processes of a session that has detached two; the supervisor is the first."""
    before = {one.pid for one in descendants(os.getpid())}
    await sandbox.run(KEY, DETACH)
    return [one for one in descendants(os.getpid()) if one.pid not in before]


@pytest.fixture
def work_root() -> Iterator[Path]:
    """A directory that every user can reach, unlike those of pytest: without namespaces, the code of a server that runs
    as root belongs to another user and sees the real directories."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "work"


@pytest.fixture(params=PLANS, ids=lambda plan: f"{plan.namespaces}{'-drop' if plan.drop else ''}")
async def jailed(request: pytest.FixtureRequest, make: Make, monkeypatch: pytest.MonkeyPatch) -> LinuxSandbox:
    plan: IsolationPlan = request.param
    if plan.namespaces == "none":
        monkeypatch.setattr(Cgroups, "detect", Cgroups)  # an ordinary user has none
    return make(SandboxPolicy(warm=0, mode="off" if plan.namespaces == "off" else "auto"), plans=[plan])


@pytest.mark.parametrize("generation", [0, 1, 2], ids=["supervisor", "its child", "the child's child"])
async def test_nothing_is_left_when_one_of_the_processes_is_killed(jailed: LinuxSandbox, generation: int) -> None:
    everybody = await family(jailed)
    assert len([one for one in everybody if one.alive]) >= 4
    chain = [everybody[0]]
    for _ in range(generation):
        chain.append(next(one for one in everybody if one.parent == chain[-1].pid))
    chain[-1].send(signal.SIGKILL)
    if generation < 2:
        assert await survivors(everybody, WITHIN_S) == []
    again = await jailed.run(KEY, "'again'")
    await jailed.close(KEY)
    assert await survivors(everybody, WITHIN_S) == []
    # The server may learn of the end of the process before or during this run.
    assert again.lost or "lost its process" in (again.error or "") or generation == 2


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.namespaces}{'-drop' if plan.drop else ''}")
def test_nothing_is_left_when_the_server_is_killed(plan: IsolationPlan, work_root: Path) -> None:
    arguments = [str(work_root), plan.namespaces, str(plan.drop)]
    with subprocess.Popen([sys.executable, "-c", SERVER, *arguments], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        everybody = descendants(server.pid)
        server.kill()
    assert len(everybody) >= 4
    assert asyncio.run(survivors(everybody, WITHIN_S)) == []


async def test_a_session_that_is_reset_leaves_nothing(jailed: LinuxSandbox) -> None:
    everybody = await family(jailed)
    started = time.monotonic()
    await jailed.reset(KEY)
    assert await survivors(everybody, WITHIN_S) == [], time.monotonic() - started

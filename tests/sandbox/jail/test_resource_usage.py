"""Tests the limits on all processes of a session together: memory, number of processes, and control groups if
available.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_kernel.core.protocols import Work
from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host.cgroup import Cgroups, SessionCgroup
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.jail.jail import IsolationPlan
from agent_kernel.sandbox.jail.resource_usage import (
    ResourceUsage,
    check_usage,
    exact_mb,
    measure_usage,
    stopped_processes,
)
from tests.sandbox.conftest import Make
from tests.waiting import block_until

if sys.platform != "linux":
    pytest.skip("the sandbox needs Linux", allow_module_level=True)

KEY = SessionKey("local", "usage")
LIMITS = {"procs": 10, "session_memory_mb": 100}
PLANS = [plan for plan in IsolationPlan.candidates(root=os.geteuid() == 0) if plan != IsolationPlan("none", True)]
EACH_TAKES_SOME = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        held = bytearray(os.urandom(1 << 20) * 40)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""
SHARED = """
import os, time
held = bytearray(os.urandom(1 << 20) * 80)
for _ in range(4):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
time.sleep(3)
'shared'
"""


@pytest.fixture
def no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cgroups, "detect", Cgroups)


@pytest.mark.usefixtures("no_groups")
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.namespaces)
async def test_a_session_whose_processes_take_too_much_together_is_ended_and_told(
    make: Make, plan: IsolationPlan
) -> None:
    sandbox = make(SandboxPolicy(warm=0, session_memory_mb=160), plans=[plan])
    if not (await sandbox.report())["limits"]["active"]:
        pytest.skip("not possible on this system")
    result = await sandbox.run(KEY, Work(EACH_TAKES_SOME, timeout_s=50))
    assert "more than 160 MB of memory together" in str(result.error)
    assert (await sandbox.run(KEY, "1 + 1")).value == "2"


async def test_a_session_that_is_ended_for_its_memory_says_so_whoever_counts_it(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, session_memory_mb=160))
    if not (await sandbox.report())["limits"]["active"]:
        pytest.skip("not possible on this system")
    result = await sandbox.run(
        KEY, Work("held = []\nwhile True: held.append(bytearray(b'1') * (1 << 20))", timeout_s=50)
    )
    assert "more than 160 MB of memory together" in str(result.error)
    assert (await sandbox.run(KEY, "1 + 1")).value == "2"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill {}\noom_group_kill 0\n"),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"),
    ],
)
def test_a_control_group_knows_whether_the_kernel_killed_for_memory(tmp_path: Path, file: str, text: str) -> None:
    scope = SessionCgroup({"memory": tmp_path})
    assert not scope.killed_for_memory()
    for count in (0, 1):
        (tmp_path / file).write_text(text.format(count))
        assert scope.killed_for_memory() is bool(count)
    assert not SessionCgroup({}).killed_for_memory()


@pytest.mark.usefixtures("no_groups")
async def test_memory_that_processes_share_counts_once(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, session_memory_mb=250))
    assert (await sandbox.run(KEY, SHARED)).value == "'shared'"


@pytest.mark.usefixtures("no_groups")
@pytest.mark.parametrize("plan", [plan for plan in PLANS if not plan.drop], ids=lambda plan: plan.namespaces)
async def test_a_fork_bomb_of_root_is_ended_also_without_a_group(make: Make, plan: IsolationPlan) -> None:
    if os.geteuid() != 0:
        pytest.skip("the limit of the user holds")
    sandbox = make(SandboxPolicy(warm=0, procs=20), plans=[plan])
    bomb = "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(30)\n    time.sleep(0.002)"
    result = await sandbox.run(KEY, Work(bomb, timeout_s=50))
    assert "more than 20 processes" in str(result.error)
    assert (await sandbox.run(KEY, "1 + 1")).value == "2"


async def test_a_group_bounds_the_processes_of_a_session_and_goes_with_it(make: Make) -> None:
    parents = Cgroups.detect().parents
    if "pids" not in parents:
        pytest.skip("no control group can be made here")
    ours = f"agent-kernel-{os.getpid()}-*"  # other processes make and remove groups of their own
    sandbox = make(SandboxPolicy(warm=0, procs=12), plans=[PLANS[-1]])
    bomb = "import os, time\nn = 0\ntry:\n    while True:\n        if os.fork() == 0: time.sleep(60)\n        n += 1\n"
    assert (await sandbox.run(KEY, f"{bomb}except OSError: pass\nn <= 16")).value == "True"
    assert list(parents["pids"][0].glob(ours))
    await sandbox.aclose()
    assert not list(parents["pids"][0].glob(ours))


def test_the_usage_of_descendants_is_counted() -> None:
    code = (
        "import subprocess, time\nsubprocess.Popen(['sleep', '60'])\nheld = bytearray(30 << 20)\n"
        "print('x', flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = measure_usage(os.getpid(), everybody=False)
        below = measure_usage(process.pid, everybody=False)
        mine = exact_mb([process.pid])
        for pid in (*below.pids, process.pid):
            os.kill(pid, 9)
    assert {process.pid, *below.pids} <= set(found.pids)
    assert len(below.pids) == 1
    assert 30 <= mine <= found.memory_mb + 1


def test_what_a_group_counts_is_not_counted_again() -> None:
    with sleeping() as process:
        much = ResourceUsage((process.pid,), 99, 10_000)
        assert "more than 10 processes" in check_usage(much, LIMITS, {}).too_much
        assert check_usage(much, LIMITS, {"processes": "by a group", "memory": "by a group"}).too_much == ""
        # By the exact count, which is that of one process, it is no more than it may be.
        found = check_usage(ResourceUsage((process.pid,), 1, 10_000), LIMITS, {})
        assert found.too_much == ""
        assert 0 < found.left_mb <= 100


def test_processes_stand_still_while_their_memory_is_counted() -> None:
    with sleeping() as process, sleeping() as already:
        os.kill(already.pid, signal.SIGSTOP)
        block_until(lambda: state(already.pid) == "T")
        with stopped_processes((process.pid, already.pid, 2**22 + 1)):
            block_until(lambda: state(process.pid) == "T")
        block_until(lambda: state(process.pid) == "S")
        assert state(already.pid) == "T"


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A cgroup v2 tree as systemd delegates it to a user: app.slice belongs to the user, x.scope contains the
    server.
    """
    proc, app = tmp_path / "proc" / "self", tmp_path / "cgroup" / "user.slice" / "app.slice"
    (app / "x.scope").mkdir(parents=True)
    proc.mkdir(parents=True)
    (proc / "mountinfo").write_text(f"30 23 0:26 / {tmp_path}/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n")
    (proc / "cgroup").write_text("0::/user.slice/app.slice/x.scope\n")
    for directory in (tmp_path / "cgroup" / "user.slice", app, app / "x.scope"):
        (directory / "cgroup.type").write_text("domain")
        (directory / "cgroup.procs").write_text("")
        (directory / "cgroup.subtree_control").write_text("cpu memory pids" if directory == app else "")
        for name in ("memory.max", "pids.max"):
            (directory / name).write_text("max\n")
    return tmp_path


def test_a_group_is_made_beside_the_servers_own(system: Path) -> None:
    app = system / "cgroup" / "user.slice" / "app.slice"
    found = Cgroups.detect(system / "proc")
    assert found.parents == {"memory": (app, 2), "pids": (app, 2)}
    scope = found.scope(memory_mb=100, procs=9)
    (made,) = set(scope.directories.values())
    assert made.parent == app
    assert ((made / "memory.max").read_text(), (made / "pids.max").read_text()) == (str(100 << 20), "9")
    scope.add(77)
    assert (made / "cgroup.procs").read_text() == "77"


@pytest.mark.parametrize("name", ["memory.max", "pids.max", "cpu.max"])
def test_a_session_does_not_get_away_from_a_limit_of_the_server(system: Path, name: str) -> None:
    (system / "cgroup" / "user.slice" / "app.slice" / "x.scope" / name).write_text("1000")
    assert Cgroups.detect(system / "proc").parents == {}


def test_without_delegation_there_are_no_groups(system: Path) -> None:
    (system / "cgroup" / "user.slice" / "app.slice" / "cgroup.subtree_control").write_text("cpu")
    assert Cgroups.detect(system / "proc").parents == {}
    assert Cgroups.detect(system / "nothing").parents == {}


def test_of_version_1_only_the_top_is_used(system: Path) -> None:
    pids, memory = system / "pids", system / "memory"
    for directory in (pids, memory / "managed"):
        directory.mkdir(parents=True)
    lines = [f"3{n} 23 0:26 / {path} rw - cgroup cgroup rw,{path.name}" for n, path in enumerate((pids, memory))]
    (system / "proc" / "self" / "mountinfo").write_text("\n".join(lines) + "\n")
    (system / "proc" / "self" / "cgroup").write_text("2:pids:/\n1:memory:/managed\n")
    assert Cgroups.detect(system / "proc").parents == {"pids": (pids, 1)}


def test_what_a_dead_server_left_is_swept(system: Path) -> None:
    app = system / "cgroup" / "user.slice" / "app.slice"
    dead, alive = app / "agent-kernel-4194399-1", app / f"agent-kernel-{os.getpid()}-1"
    for directory in (dead, alive):
        directory.mkdir()
    Cgroups.detect(system / "proc").sweep()
    assert (dead.exists(), alive.exists()) == (False, True)
    assert SessionCgroup({"pids": alive}).remove()

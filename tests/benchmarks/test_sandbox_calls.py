"""Compares calls in a sandbox with their elements: a pipe, a shell, an interpreter. Prints ratios and times."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

from agent_kernel.core.protocols import Work
from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from tests.narrowing import not_none

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
KEY = SessionKey("local", "calls")
ECHO = "import sys\nfor line in sys.stdin: print(eval(line), flush=True)"
SESSIONS = 20


async def median(act: Callable[[], Awaitable[object]], times: int) -> float:
    """Return the median time of ``act`` in seconds."""
    spent = []
    for _ in range(times):
        started = time.perf_counter()
        await act()
        spent.append(time.perf_counter() - started)
    return statistics.median(spent)


def own_kb(pid: int) -> int:
    """Return the memory of a process in kB; shared pages count proportionally."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def below(pid: int) -> list[int]:
    found = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return [*found, *(pid for child in found for pid in below(child))]


async def test_a_warm_call_costs_little_more_than_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ECHO, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None

    async def pipe() -> None:
        not_none(child.stdin).write(b"1 + 1\n")
        await not_none(child.stdout).readline()

    async def script() -> None:
        done = await asyncio.create_subprocess_exec("/bin/sh", "-c", "echo 2", stdout=subprocess.PIPE)
        await done.communicate()

    async def interpreter() -> None:
        done = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass")
        await done.wait()

    sandbox = LinuxSandbox(tmp_path / "work", SandboxPolicy(warm=0))
    data = np.arange(1 << 20, dtype="f8").tobytes()
    try:
        await pipe()
        await sandbox.run(KEY, f"import numpy\nbig = numpy.frombuffer(bytearray({len(data)}))\nsmall = [1, 2]")
        figures = {
            "pipe to a bare interpreter": await median(pipe, 300),
            "warm python call": await median(lambda: sandbox.run(KEY, "1 + 1"), 300),
            "taken: a small value": await median(lambda: sandbox.take(KEY, "small"), 100),
            "taken: an array of 8 MiB": await median(lambda: sandbox.take(KEY, "big"), 10),
            "bare sh": await median(script, 60),
            "bare interpreter": await median(interpreter, 15),
            "shell call": await median(lambda: sandbox.run(KEY, Work("echo 2", "shell")), 60),
        }
    finally:
        await sandbox.aclose()
        child.stdin.close()
        await child.wait()
    base, start = figures["pipe to a bare interpreter"], figures["bare interpreter"]
    with capsys.disabled():
        print("\ncalls, against a pipe to a bare interpreter in the same run:")
        for name, seconds in figures.items():
            print(f"  {name:<34}{seconds * 1e3:>9.3f} ms {seconds / base:>8.1f}x")
    assert figures["warm python call"] < 0.5 * start
    assert figures["shell call"] < 2 * start


async def test_sessions_side_by_side_cost_little_more_than_bare_interpreters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"], stdout=-1)
    assert bare.stdout is not None
    bare.stdout.readline()
    alone = own_kb(bare.pid)
    sandbox = LinuxSandbox(tmp_path / "work", SandboxPolicy(warm=0, max_sessions=SESSIONS))
    try:
        me = below(_pid())
        keys = [SessionKey("local", f"s{number}") for number in range(SESSIONS)]
        started = time.perf_counter()
        results = await asyncio.gather(*(sandbox.run(key, "x = 1\nx") for key in keys))
        seconds = time.perf_counter() - started
        assert [result.value for result in results] == ["1"] * SESSIONS
        theirs = [pid for pid in below(_pid()) if pid not in me]
        total = sum(own_kb(pid) for pid in theirs)
    finally:
        await sandbox.aclose()
        bare.kill()
        bare.wait()
        bare.stdout.close()
    with capsys.disabled():
        print(
            f"\n{SESSIONS} sessions side by side: {total / 1024:.0f} MB in {len(theirs)} processes, "
            f"{total / SESSIONS / alone:.1f} times a bare interpreter ({alone / 1024:.0f} MB) each; "
            f"all had run their first code after {seconds:.2f} s"
        )
    assert total < SESSIONS * 10 * alone
    assert total < 1536 << 10


def _pid() -> int:
    return int(Path("/proc/self").resolve().name)

"""Tests that no process, descriptor, task or directory remains after a thousand calls."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from pathlib import Path

import pytest

from agent_kernel.core.protocols import Variable, Work
from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from tests.sandbox.conftest import Make, children
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
CALLS = 1_000
SESSIONS = [SessionKey("local", name) for name in ("one", "two", "three")]
KINDS = (
    Work("n = n + 1 if 'n' in globals() else 0\nprint(n)"),
    Work("1 / 0"),
    Work("g + 1", given=(Variable("g", "json", b"1"),)),
    Work("import threading\nthreading.Thread(target=int).start()"),
    Work("f = open('f', 'w'); f.write('x' * 1000)"),
    Work("raise KeyboardInterrupt"),
)
SHELL = Work("echo x > s; cat s; sleep 0.01 &", "shell")


def descendants(pid: int) -> int:
    below = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return len(below) + sum(descendants(child) for child in below)


def count_resources() -> tuple[int, int, int]:
    """Return (number of descendants, open descriptors, tasks) of this process."""
    return descendants(os.getpid()), len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())


async def until_resources(wanted: tuple[int, int, int]) -> None:
    """Wait until this process has no more than that: what was killed may end a moment later."""
    with contextlib.suppress(TimeoutError):
        await until(lambda: count_resources() == wanted, 20)
    assert count_resources() == wanted


async def wait_until_warm(sandbox: LinuxSandbox) -> None:
    """Wait until the sandbox has a warm process and the tasks that started it have ended."""
    await sandbox.warm()
    await asyncio.sleep(0.5)


async def test_a_thousand_calls_leave_nothing_behind(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    nothing, before = count_resources(), children()
    sandbox = make(SandboxPolicy(warm=1))
    for key in SESSIONS:
        await sandbox.run(key, "0")
    await wait_until_warm(sandbox)
    busy = count_resources()
    for number in range(CALLS):
        key = SESSIONS[number % len(SESSIONS)]
        if number % 40 == 39:
            await sandbox.run(key, SHELL)
        elif number % 50 == 49:
            await sandbox.variables(key)
        else:
            await sandbox.run(key, KINDS[number % len(KINDS)])
        if number % 200 == 199:
            await sandbox.reset(key)
            await sandbox.run(key, "0")
    await wait_until_warm(sandbox)
    await until_resources(busy)
    for key in SESSIONS:
        await sandbox.close(key, remove=True)
    assert list((tmp_path / "work").iterdir()) == []
    await sandbox.aclose()
    await until_resources(nothing)
    assert children() == before
    assert list(temporary.iterdir()) == []

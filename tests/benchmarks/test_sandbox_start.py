"""Compares starting the sandbox with starting a plain Python in the same run. Only ratios are asserted, with wide
bounds, because other load slows both.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from tests.benchmarks.conftest import Record

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
TIMES = 7
ROWS = {
    "jailed worker, from nothing": "jailed worker, from nothing",
    "jailed worker, taken warm, with its first run": "taken warm, jailed and first run",
    "run in a started worker": "round trip",
    "`import numpy` in a new worker": "import numpy",
    "`import pandas` in a new worker": "import pandas",
}
"""Maps a row of the page of figures to the figure that is printed."""


async def nothing() -> None: ...


async def median(
    act: Callable[[int], Awaitable[object]], times: int = TIMES, before: Callable[[], Awaitable[None]] = nothing
) -> float:
    """Return the median time of ``act`` in seconds. ``before`` runs ahead of each measurement and does not count."""
    spent = []
    for number in range(times):
        await before()
        await asyncio.sleep(0.2 if times <= TIMES else 0)  # what the last one set off has ended
        started = time.perf_counter()
        await act(number)
        spent.append(time.perf_counter() - started)
    return statistics.median(spent)


async def test_a_jailed_worker_starts_nearly_as_fast_as_python_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record: Record
) -> None:
    async def plain(number: int) -> None:
        subprocess.run([sys.executable, "-c", "pass"], check=True)

    def key(name: str, number: int) -> SessionKey:
        return SessionKey("local", f"{name}{number}")

    async def taken(number: int) -> None:
        await warm.run(key("w", number), "1")

    cold = LinuxSandbox(tmp_path / "cold", SandboxPolicy(warm=0))
    warm = LinuxSandbox(tmp_path / "warm", SandboxPolicy(warm=1, max_sessions=50))
    try:
        await cold.report()
        await warm.warm()
        figures = {
            "plain python": await median(plain),
            "jailed worker, from nothing": await median(lambda n: cold.run(key("c", n), "1")),
            "taken warm, jailed and first run": await median(taken, before=warm.warm),
            "round trip": await median(lambda n: cold.run(key("c", 0), "1"), 200),
            "import numpy": await median(lambda n: cold.run(key("c", n), "import numpy")),
            "import pandas": await median(lambda n: cold.run(key("c", n), "import pandas"), 3),
            "first figure of a session": await median(lambda n: cold.run(key("c", n), "plt.plot([1])"), 3),
        }
    finally:
        await cold.aclose()
        await warm.aclose()
    base = figures["plain python"]
    with capsys.disabled():
        print("\nsandbox, against a plain python start in the same run:")
        for name, seconds in figures.items():
            print(f"  {name:<34}{seconds * 1e3:>9.2f} ms {seconds / base:>8.3f}x")
    for row, name in ROWS.items():
        record(row, figures[name] * 1e3, base * 1e3, "ms")
    assert figures["jailed worker, from nothing"] < 12 * base
    assert figures["taken warm, jailed and first run"] < figures["jailed worker, from nothing"]
    assert figures["round trip"] < 0.5 * base

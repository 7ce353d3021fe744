"""Our store against those of openai-agents and selectools, on the same PostgreSQL and the same Redis in the same run:
``python -m tests.benchmarks.shared_session_peers [append|tail|search|batches|writers ...]``.

``make test-stores test-peers`` installs the databases and the peers before (AGENT_KERNEL_PEERS: another directory of
their environments). Each figure is measured in a process of its own (``session_contest.py``), in an empty schema or
under an empty prefix. selectools has no store for PostgreSQL, and openai-agents has no search.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.session_contestants import URL
from tests.server import ROOT
from tests.sessions.log.servers import Postgres, Redis

CONTEST = Path(__file__).with_name("session_contest.py")
OURS = "ours, shared"
PEERS: Mapping[str, Mapping[str, str]] = {
    "postgresql": {"openai-agents postgresql": "openai"},
    "redis": {"openai-agents redis": "openai", "selectools redis": "selectools"},
}
"""For each database, the contestants and the environments that they run in."""
TASKS: Mapping[str, tuple[int, str, bool]] = {
    "append": (1_000, "ms for a turn of two messages, in a session of 1,000", False),
    "tail": (1_000, "ms for the newest 20 of 1,000 messages", False),
    "search": (1_000, "ms for a rare word in 1,000 sessions of 20", False),
    "batches": (1_000, "sessions of 20 messages a second, each in one call, by 8 writers", True),
    "writers": (200, "sessions of 20 messages a second, turn by turn, by 8 writers", True),
}
"""The size of each task, what its figure is, and whether more is better."""


def environment(name: str) -> str:
    place = Path(os.environ.get("AGENT_KERNEL_PEERS", ROOT / "build"))
    return str(place / f"peers-{name}" / "bin" / "python")


def measure(python: str, contestant: str, task: str, url: str, directory: Path) -> float:
    command = [python, str(CONTEST), contestant, task, str(directory), str(TASKS[task][0])]
    env = {**os.environ, "PYTHONPATH": str(ROOT), URL: url}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "whole" in found:
        assert (found["errors"], found["whole"]) == (0, TASKS[task][0]), found
    return float(found.get("wall") or found.get("rare") or found["committed/s"])


def compare(task: str, database: str, fresh: Callable[[], str], directory: Path) -> None:
    _, unit, is_rate = TASKS[task]
    peers = {name: peer for name, peer in PEERS[database].items() if task != "search" or peer == "selectools"}
    pythons = {OURS: sys.executable} | {name: environment(peer) for name, peer in peers.items()}
    figures = {name: measure(python, name, task, fresh(), directory) for name, python in pythons.items()}
    print(f"\n{database}, {task}: {unit} (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)", flush=True)
    for name, figure in figures.items():
        ratio = figures[OURS] / figure if is_rate else figure / figures[OURS]
        print(f"  {name:28}{figure:10.3f}{'' if name == OURS else f'   ours is {ratio:.2f} times as fast'}", flush=True)


def main(tasks: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="agent-kernel-peers-") as place:
        directory = Path(place)
        postgres, redis = Postgres(directory / "postgres"), Redis(directory)
        try:
            for task in tasks or TASKS:
                compare(task, "postgresql", postgres.fresh, directory)
                compare(task, "redis", redis.fresh, directory)
        finally:
            redis.stop()
            postgres.stop()


if __name__ == "__main__":
    main(sys.argv[1:])

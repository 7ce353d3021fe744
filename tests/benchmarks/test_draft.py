"""Measures the cost of a forked kernel, and compares the output of code in a draft with its output in the kernel
itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.conftest import Record

SCRIPT = Path(__file__).with_name("draft_tasks.py")
ROOT = Path(__file__).parents[2]


def run_driver(*words: str) -> Any:
    env = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words], env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_reference_solutions_of_the_notebook_tasks_say_the_same_in_a_draft() -> None:
    """Those that write files are refused there, and offered to the person for real."""
    found = run_driver("tasks")
    refused = [task["name"] for task in found if task["refused"]]
    others = [task for task in found if not task["refused"]]
    print(f"{len(others)} of {len(found)} solutions run in a draft; for the kernel itself are: {', '.join(refused)}")
    assert [task["name"] for task in others if not task["same"]] == []
    assert [task["name"] for task in others if task["holds"][0] != task["holds"][1]] == []
    assert [task["name"] for task in found if not task["untouched"]] == [], "the kernel and its files are as before"
    assert {task["kind"] for task in found if task["refused"]} == {"file"}


@pytest.mark.parametrize("megabytes", [100, 1000, 4000])
def test_what_a_draft_costs_by_the_size_of_the_kernel(megabytes: int, record: Record) -> None:
    found = run_driver("size", str(megabytes))
    print(", ".join(f"{name} {value:.1f}" for name, value in found.items()))
    size = {100: "100 MB", 1000: "1 GB", 4000: "4 GB"}[megabytes]
    record(f"start of a draft of a kernel of {size}", found["start_ms"], found["fork_ms"], "ms")
    record(f"call in a draft of a kernel of {size}", found["call_ms"], None, "ms")
    assert found["private_mb"] < max(40, found["rss_mb"] / 10), "it shares what it does not write"
    assert found["call_ms"] < found["start_ms"], "a call costs less than a copy"


def test_what_fifty_calls_cost_beside_a_kernel_of_a_gigabyte() -> None:
    """Before each call the draft forks itself, so that a call that fails leaves nothing in it."""
    found = run_driver("chain", "1000", "50")
    overhead = found["call_ms"] - found["plain_ms"]
    more = (found["all_call_ms"] - found["all_plain_ms"]) / 1e3
    print(f"{found['rss_mb']} MB: {found['call_ms']:.1f} ms a call, of which {overhead:.1f} ms for its fork; ", end="")
    print(f"{more:.2f} s more for 50 calls; {found['failed_ms']:.0f} ms for one that fails; ", end="")
    print(f"processor time {found['cpu_ms']:.1f} ms a call, {found['plain_cpu_ms']:.1f} ms without the fork")
    assert found["seen"] == "Out[0]: 100", "successful calls build on each other, failed ones leave nothing"
    assert found["cpu_ms"] - found["plain_cpu_ms"] < 100

"""The same sixty tasks by smolagents' CodeAgent on the same weights. AGENT_KERNEL_BENCH_SMOLAGENTS is an interpreter
with smolagents, pandas and matplotlib; _MODEL, _TASKS and the like are those of ``test_notebook_tasks.py``;
AGENT_KERNEL_BENCH_TAGS=markdown lets it fence its code as its documentation says small models like it."""

from __future__ import annotations

import os
import time

import pytest

from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from tests.benchmarks.notebook_tasks import record, report, table, tasks
from tests.benchmarks.peer_runs import MAX_STEPS, outcomes
from tests.benchmarks.test_notebook_tasks import MODEL

SMOLAGENTS = os.environ.get("AGENT_KERNEL_BENCH_SMOLAGENTS", "")
TAGS = os.environ.get("AGENT_KERNEL_BENCH_TAGS", "")


@pytest.mark.skipif(not SMOLAGENTS, reason="AGENT_KERNEL_BENCH_SMOLAGENTS names no interpreter with smolagents")
@pytest.mark.slow
@pytest.mark.timeout(14_400)
async def test_right_answers_of_smolagents(capsys: pytest.CaptureFixture[str]) -> None:
    only = [name for name in os.environ.get("AGENT_KERNEL_BENCH_TASKS", "").split(",") if name]
    chosen = [task for task in tasks() if not only or task.name in only]
    engine = LocalEngine(MODEL, Settings.from_env().cache_dir)
    started = time.monotonic()
    try:
        results = await outcomes(engine, SMOLAGENTS, chosen, tags=TAGS)
    finally:
        await engine.aclose()
    seconds = time.monotonic() - started
    kept = record(f"smolagents-{MODEL}-{TAGS}", results, seconds)
    with capsys.disabled():
        print(f"\nsmolagents, {MAX_STEPS} steps, {MODEL}: {seconds:.0f} s in all; {kept}")
        print(f"{table(results)}\n{report(results)}")

    failed = [result.wrong for result in results if result.wrong.startswith("the agent failed")]
    assert not failed

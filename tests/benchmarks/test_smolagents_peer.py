"""Runs the same sixty tasks with smolagents' CodeAgent on the same weights.

AGENT_KERNEL_BENCH_SMOLAGENTS is an interpreter with smolagents, pandas and matplotlib. _MODEL and _TASKS are those of
``notebook_tasks.py``. AGENT_KERNEL_BENCH_TAGS=markdown makes it fence its code as its documentation recommends for
small models.
"""

from __future__ import annotations

import os
import time
from contextlib import aclosing

import pytest

from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from agent_kernel.evaluation.task import TASK_SETS, load_tasks
from tests.benchmarks.notebook_tasks import MODEL, ONLY, record
from tests.benchmarks.peer_runs import MAX_STEPS, outcomes

SMOLAGENTS = os.environ.get("AGENT_KERNEL_BENCH_SMOLAGENTS", "")
TAGS = os.environ.get("AGENT_KERNEL_BENCH_TAGS", "")


@pytest.mark.skipif(not SMOLAGENTS, reason="AGENT_KERNEL_BENCH_SMOLAGENTS names no interpreter with smolagents")
@pytest.mark.slow
@pytest.mark.timeout(14_400)
async def test_right_answers_of_smolagents(capsys: pytest.CaptureFixture[str]) -> None:
    only = [name for name in ONLY.split(",") if name]
    chosen = [task for task in load_tasks(TASK_SETS / "notebook.toml") if not only or task.name in only]
    engine = LocalEngine(MODEL or "coder-0.5b", Settings.from_env().cache_dir)
    started = time.monotonic()
    async with aclosing(engine):
        results = await outcomes(engine, SMOLAGENTS, chosen, tags=TAGS)
    seconds = time.monotonic() - started
    with capsys.disabled():
        record("-".join(filter(None, ["smolagents", f"{MAX_STEPS}-steps", MODEL, TAGS])), results, seconds)

    assert not [result.wrong for result in results if result.broken]

"""The sixty notebook tasks and twenty on a named file, as ``%%agent`` cells in drafts with the default model.

AGENT_KERNEL_BENCH_TASKS="name,name" chooses some of the tasks; what happened in each is written to build/benchmarks/.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from tests.benchmarks.draft_runs import outcomes
from tests.benchmarks.notebook_tasks import (
    FILE_TASKS,
    Found,
    Outcome,
    Task,
    leaked,
    record,
    report,
    table,
    tasks,
    wrong,
)
from tests.benchmarks.sandbox_notebook import SandboxNotebook
from tests.server import AgentServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="drafts need Linux")
NAMED = re.compile(r"\"([^\"]+)\"|([\w/-]+\.(?:csv|tsv|jsonl?|txt|log))")
WATCHED = """
_opened = []
import sys, json, re, os, math, datetime, csv
import numpy as np, pandas as pd, matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
def _hook(event, args):
    if event == "open" and isinstance(args[0], (str, os.PathLike)):
        _opened.append(os.fspath(args[0]))
sys.addaudithook(_hook)
"""


@pytest_asyncio.fixture(loop_scope="function")
async def server(tmp_path: Path) -> AsyncGenerator[AgentServer, None]:
    """With the default model and the default place of code, which is the draft."""
    made = AgentServer(tmp_path, traits={"engine": "local"})
    try:
        yield await made.start()
    finally:
        made.sweep()


@pytest_asyncio.fixture(loop_scope="function")
async def sandbox(tmp_path: Path) -> AsyncGenerator[LinuxSandbox, None]:
    made = LinuxSandbox(tmp_path / "work", SandboxPolicy(max_sessions=16))
    yield made
    await made.aclose()


def test_there_are_twenty_tasks_on_named_files_and_half_of_them_are_held_out() -> None:
    those = tasks(FILE_TASKS)
    assert len({task.name for task in those}) == len(those) == 20
    assert sum(task.held_out for task in those) == 10
    assert all(NAMED.search(task.prompts[0]) for task in those)


@pytest.mark.parametrize("task", tasks(FILE_TASKS), ids=lambda task: task.name)
async def test_the_checks_take_a_right_answer_and_refuse_no_work(task: Task, sandbox: LinuxSandbox) -> None:
    notebook = SandboxNotebook(sandbox, SessionKey("local", "check"))
    await notebook.prepare(task.setup, figures=bool(task.draws))
    before = Found("I do not know.", holds=await notebook.holds(task.holds) if task.holds else None)
    result = await notebook.run(task.solution[0])
    assert result.status == "success", result.error
    holds = await notebook.holds(task.holds) if task.holds else None
    draws = await notebook.draws(task.draws) if task.draws else None
    await notebook.close()
    assert not wrong(task, Found(f"The answer is {result.stdout.strip()}.", holds=holds, draws=draws))
    assert wrong(task, before) or task.draws


async def chosen(
    server: AgentServer, what: str, those: Sequence[Task], capsys: pytest.CaptureFixture[str]
) -> list[Outcome]:
    only = [name for name in os.environ.get("AGENT_KERNEL_BENCH_TASKS", "").split(",") if name]
    started = time.monotonic()
    results = await outcomes(server, [task for task in those if not only or task.name in only])
    seconds = time.monotonic() - started
    kept = record(what, results, seconds)
    with capsys.disabled():
        print(f"\n{what}: {seconds:.0f} s in all; {kept}\n{table(results)}\n{report(results)}")
    assert not leaked(turn for result in results for turn in result.turns)
    return results


@pytest.mark.model("default")
@pytest.mark.slow
@pytest.mark.timeout(7200)
async def test_right_answers_of_the_sixty_tasks_in_drafts(
    server: AgentServer, capsys: pytest.CaptureFixture[str]
) -> None:
    results = await chosen(server, "drafts", tasks(), capsys)
    if len(results) == 60:
        assert sum(not result.wrong for result in results) >= 1
        assert sum(result.chat_code for result in results) <= 1


@pytest.mark.model("default")
@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_the_first_call_opens_the_file_that_the_question_names(
    server: AgentServer, sandbox: LinuxSandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    results = await chosen(server, "files", tasks(FILE_TASKS), capsys)
    unopened = [result.task.name for result in results if not await opens(sandbox, result)]
    with capsys.disabled():
        print(f"the first call opened the file in {len(results) - len(unopened)} of {len(results)}; not in {unopened}")
    assert not unopened


async def opens(sandbox: LinuxSandbox, outcome: Outcome) -> bool:
    """Whether the first code of a task really opens the file, run once more where every open is counted."""
    task, code = outcome.task, outcome.first_code
    named = NAMED.search(task.prompts[0])
    assert named is not None
    key = SessionKey("local", f"opens-{task.name}".replace(" ", "-"))
    notebook = SandboxNotebook(sandbox, key)
    await notebook.prepare(f"{task.setup}\n{WATCHED}", figures=False)
    await notebook.run(code)
    opened = await notebook.holds(f"any(path.endswith({(named[1] or named[2])!r}) for path in _opened)")
    await notebook.close()
    return opened

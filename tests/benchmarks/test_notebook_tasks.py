"""Measures how many of agent-kernel's own tasks the default model, or another one (see ``notebook_tasks``), answers
right.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from agent_kernel.core.session import SessionKey
from agent_kernel.evaluation.task import TASK_SETS, Task, load_tasks
from agent_kernel.evaluation.task_result import TaskResult
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from tests.benchmarks.notebook_tasks import MODEL, ONLY, PROTOCOL, leaked, measured, texts
from tests.evaluation.sandbox_notebook import SandboxNotebook

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="drafts and the sandbox need Linux"),
    pytest.mark.model("coder-0.5b"),
    pytest.mark.slow,
    pytest.mark.timeout(7200),
]
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
async def sandbox(tmp_path: Path) -> AsyncGenerator[LinuxSandbox, None]:
    made = LinuxSandbox(tmp_path / "work", SandboxPolicy(max_sessions=16))
    yield made
    await made.aclose()


@pytest.mark.parametrize(
    ("task_set", "place", "least"), [("notebook", "draft", 30), ("notebook", "sandbox", 30), ("unseen", "draft", 1)]
)
async def test_right_answers(task_set: str, place: str, least: int) -> None:
    results = await measured(task_set, place)
    assert not leaked(texts(results))
    if not (ONLY or MODEL) and PROTOCOL in ("", "fence"):
        assert sum(result.is_right for result in results) >= least
        assert sum(result.kind == "chat" and bool(result.turns[-1].programs) for result in results) <= 1


async def test_the_first_call_opens_the_file_that_the_question_names(sandbox: LinuxSandbox) -> None:
    results = await measured("files", "draft")
    tasks = {task.name: task for task in load_tasks(TASK_SETS / "files.toml")}
    unopened = [result.name for result in results if not await opens(sandbox, tasks[result.name], result)]
    print(f"the first call opened the file in {len(results) - len(unopened)} of {len(results)}", file=sys.__stderr__)
    assert not unopened


async def opens(sandbox: LinuxSandbox, task: Task, result: TaskResult) -> bool:
    """Return True if the first code of a task opens the file. The code runs once more where every ``open`` is
    recorded.
    """
    named = NAMED.search(task.prompts[0])
    assert named is not None
    key = SessionKey("local", f"opens-{task.name}".replace(" ", "-"))
    notebook = SandboxNotebook(sandbox, key)
    await notebook.prepare(f"{task.setup}\n{WATCHED}", figures=False)
    await notebook.run(next((program.code for program in result.programs), ""))
    opened = await notebook.holds(f"any(path.endswith({(named[1] or named[2])!r}) for path in _opened)")
    await notebook.close()
    return opened

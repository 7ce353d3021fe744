"""Tests the checks of every task in the package: they accept its solution and reject a run without work."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from agent_kernel.core.session import SessionKey
from agent_kernel.evaluation.answer_check import Observation, reason_wrong
from agent_kernel.evaluation.task import TASK_SETS, Task, load_tasks, task_set_names
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from tests.evaluation.sandbox_notebook import SandboxNotebook

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
NAMED = re.compile(r"\"([^\"]+)\"|([\w/-]+\.(?:csv|tsv|jsonl?|txt|log))")
SETS = [name for name in task_set_names() if name != "tools"]
"""The tasks of the set tools need more than Python; ``test_tool_tasks.py`` checks them."""
TASKS = [(name, task) for name in SETS for task in load_tasks(TASK_SETS / f"{name}.toml")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LinuxSandbox, None]:
    made = LinuxSandbox(tmp_path_factory.mktemp("work"), SandboxPolicy(max_sessions=16))
    yield made
    await made.aclose()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("name", "task"), TASKS, ids=[f"{name}-{task.name}" for name, task in TASKS])
async def test_the_checks_take_a_right_answer_and_refuse_no_work(name: str, task: Task, sandbox: LinuxSandbox) -> None:
    notebook = SandboxNotebook(sandbox, SessionKey("local", f"check-{name}-{task.name}".replace(" ", "-")))
    await notebook.prepare(task.setup, figures=bool(task.draws))
    before = await observe(task, notebook, "I do not know.")
    answer = ""
    for code in task.solution:
        if task.draws:
            await notebook.forget_figures()
        if task.is_chat and code == task.solution[-1]:
            answer = code
            continue
        result = await notebook.run(code)
        assert result.status == "success", result.error
        answer = f"The answer is {result.stdout.strip()}."
    after = await observe(task, notebook, answer)
    await notebook.close()

    assert not reason_wrong(task, after)
    assert reason_wrong(task, before) or task.says == (r"\w",)
    if task.number is not None:
        off = 1 if not task.decimals else 2 * 10**-task.decimals
        assert reason_wrong(task, Observation(f"It is {task.number + off}.", holds=after.holds))
    if task.is_chat:
        assert reason_wrong(task, Observation(answer, codes=("print(1)",)))


def test_each_of_the_twenty_file_tasks_names_its_file() -> None:
    tasks = load_tasks(TASK_SETS / "files.toml")

    assert len(tasks) == 20
    assert all(NAMED.search(task.prompts[0]) for task in tasks)


async def observe(task: Task, notebook: SandboxNotebook, answer: str) -> Observation:
    holds = await notebook.holds(task.holds) if task.holds else None
    draws = await notebook.draws(task.draws) if task.draws else None
    return Observation(answer, holds=holds, draws=draws)

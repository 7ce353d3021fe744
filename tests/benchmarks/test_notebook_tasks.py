"""Sixty notebook tasks: right answers of a model, a backend and a protocol, and the checks that decide.

AGENT_KERNEL_BENCH_MODEL (a catalog name or path), _BACKEND, _PRECISION, _PROTOCOL (fence, native, auto) and _PYTHON
(an interpreter) choose what is measured, AGENT_KERNEL_BENCH_TASKS="name,name" some of the tasks; what happened in each
is written to build/benchmarks/.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from agent_kernel.core.session import SessionKey
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.backend import LoadOptions
from agent_kernel.engines.local.catalog import catalog
from agent_kernel.engines.local.catalog.installed_model import LocalModel
from agent_kernel.engines.local.catalog.installed_model import protocol as tool_protocol
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from tests.benchmarks.notebook_tasks import KINDS, Found, Task, numbers, record, report, table, tasks, wrong
from tests.benchmarks.sandbox_notebook import SandboxNotebook
from tests.benchmarks.task_runs import outcomes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
TASKS = tasks()
MODEL = os.environ.get("AGENT_KERNEL_BENCH_MODEL", "default")
BACKEND = os.environ.get("AGENT_KERNEL_BENCH_BACKEND", "")
PRECISION = os.environ.get("AGENT_KERNEL_BENCH_PRECISION", "")
PROTOCOL = os.environ.get("AGENT_KERNEL_BENCH_PROTOCOL", "")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LinuxSandbox, None]:
    made = LinuxSandbox(tmp_path_factory.mktemp("work"), SandboxPolicy(max_sessions=16))
    yield made
    await made.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncGenerator[LocalEngine, None]:
    options = LoadOptions(backend=BACKEND, precision=PRECISION)
    python = os.environ.get("AGENT_KERNEL_BENCH_PYTHON") or sys.executable
    resolve = catalog.resolve

    def bound(*given: Any, **named: Any) -> LocalModel:
        return replace(resolve(*given, **named), protocol=tool_protocol(PROTOCOL))

    made = LocalEngine(MODEL, Settings.from_env().cache_dir, options=options, python=python)
    with pytest.MonkeyPatch.context() as patch:
        if PROTOCOL:
            patch.setattr(catalog, "resolve", bound)
        yield made
        await made.aclose()


def test_there_are_ten_tasks_or_so_of_each_kind_and_half_of_all_are_held_out() -> None:
    assert len({task.name for task in TASKS}) == len(TASKS) == 60
    for kind in KINDS:
        those = [task for task in TASKS if task.kind == kind]
        assert len(those) >= 8
        assert sum(task.held_out for task in those) * 2 == len(those)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_the_checks_take_a_right_answer_and_refuse_no_work(task: Task, sandbox: LinuxSandbox) -> None:
    notebook = SandboxNotebook(sandbox, SessionKey("local", f"check-{task.name}"))
    await notebook.prepare(task.setup, figures=bool(task.draws))
    before = await found(task, notebook, "I do not know.")
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
    after = await found(task, notebook, answer)
    await notebook.close()

    assert not wrong(task, after)
    assert wrong(task, before) or task.says == (r"\w",)
    if task.number is not None:
        off = 1 if not task.decimals else 2 * 10**-task.decimals
        assert wrong(task, Found(f"It is {task.number + off}.", holds=after.holds))
    if task.is_chat:
        assert wrong(task, Found(answer, codes=("print(1)",)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is 3,116.73 euros.", [3116.73]),
        ("-5 and −7", [-5, -7]),
        ("np.float64(2.5), about 56.25% of 1e3", [2.5, 56.25, 1000]),
        ("There are three (of 12, 15 or 1,234).", [12, 15, 1234, 3]),
        ("no2 and Q1 and v2.10 hold no number", []),
    ],
)
def test_numbers_are_found_however_they_are_written(text: str, expected: list[float]) -> None:
    assert numbers(text) == expected


def test_a_list_with_the_right_number_in_it_is_no_answer() -> None:
    task = Task("t", "computation", ("What is the largest of 3?",), (), number=9)

    assert not wrong(task, Found("The largest of the 3 is 9."))
    assert wrong(task, Found("[4, 7, 9, 1]"))


async def found(task: Task, notebook: SandboxNotebook, answer: str) -> Found:
    holds = await notebook.holds(task.holds) if task.holds else None
    draws = await notebook.draws(task.draws) if task.draws else None
    return Found(answer, holds=holds, draws=draws)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.model("default")
@pytest.mark.slow
@pytest.mark.timeout(7200)
async def test_right_answers(engine: LocalEngine, sandbox: LinuxSandbox, capsys: pytest.CaptureFixture[str]) -> None:
    only = [name for name in os.environ.get("AGENT_KERNEL_BENCH_TASKS", "").split(",") if name]
    chosen = [task for task in TASKS if not only or task.name in only]
    started = time.monotonic()
    results = await outcomes(engine, sandbox, chosen)
    seconds = time.monotonic() - started
    backend = str(engine.info().details.get("backend", ""))
    what = "-".join(part for part in (MODEL, backend, PRECISION, PROTOCOL) if part)
    kept = record(what, results, seconds)
    with capsys.disabled():
        print(f"\n{what}: {seconds:.0f} s in all; {kept}\n{table(results)}\n{report(results)}")

    assert len(results) == len(chosen)
    if not only and MODEL == "default" and PROTOCOL in ("", "fence"):
        assert sum(not result.wrong for result in results) >= 30
        assert sum(result.chat_code for result in results) <= 1

"""Tests the tasks of the set ``tools`` with native tool calls: each can be solved, and its check distinguishes a
solution from an answer in words.

One server, and a kernel for each kind of task. Each task runs three times: without action, with words only, and right.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agent_kernel.evaluation.task import TASK_SETS, Task, load_tasks
from agent_kernel.evaluation.task_result import TaskResult
from agent_kernel.evaluation.task_runner import CellSettings, TaskNotebook, run_tasks
from agent_kernel.evaluation.tool_servers import PageServer, tool_settings
from jupyter_ext.headless.notebook_kernel import TaskNotebooks
from jupyter_ext.headless.sandbox_inspection import OPTIONS
from jupyter_ext.headless.server_process import jupyter_server
from tests.evaluation.tool_task_calls import RIGHT_RUNS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")]
TASKS = load_tasks(TASK_SETS / "tools.toml")
IDLE, WORDS, RIGHT = 1, 2, 3
"""The numbers of the three runs of a task."""
Results = Mapping[tuple[str, int], TaskResult]


class LaterTurns:
    """A notebook as a run that begins now sees it: without the earlier part of the conversation."""

    def __init__(self, notebook: TaskNotebook, seen: int) -> None:
        self._notebook = notebook
        self._seen = seen

    async def run_cell(self, code: str, answer: str) -> Any:
        return await self._notebook.run_cell(code, answer)

    async def stored(self) -> Mapping[str, Any]:
        stored = await self._notebook.stored()
        return {**stored, "items": stored["items"][self._seen :]}

    async def run_in_sandbox(self, code: str) -> str:
        return await self._notebook.run_in_sandbox(code)


def own_words(task: Task) -> str:
    """Return the part of the prompt by which the script recognizes it, without the address of the site."""
    return max(task.prompts[0].split("{site}"), key=len)


def in_turn(tasks: Sequence[Task]) -> list[Task]:
    """Return the first task of each kind, then the second of each, and so on, because tasks of one kind share
    a kernel.
    """
    kinds = dict.fromkeys(task.kind for task in tasks)
    groups = [[task for task in tasks if task.kind == kind] for kind in kinds]
    return [task for row in zip_longest(*groups) for task in row if task is not None]


def script(tasks: Sequence[Task], pages: PageServer) -> list[dict[str, Any]]:
    """Return the script of the three runs of each task, in this order."""
    rounds: list[dict[str, Any]] = []
    for task in tasks:
        right, site = RIGHT_RUNS[task.name], pages.publish(task, RIGHT).url
        when = own_words(task)
        rounds += [{"when": when, "text": "I do not know."}, {"when": when, "text": right.answer}]
        rounds += [
            {"when": when, "calls": json.loads(json.dumps(calls).replace("{site}", site))} for calls in right.rounds
        ]
        rounds.append({"when": when, "text": right.answer})
    return rounds


async def run_three_times(tasks: Sequence[Task], folder: Path, take: Any) -> None:
    with PageServer() as pages:
        (folder / "script.json").write_text(json.dumps(script(tasks, pages)))
        (folder / "notebooks").mkdir()
        settings = {"engine": "scripted", "script": str(folder / "script.json"), "transcripts": "off"}
        settings |= tool_settings(tasks, pages, folder)
        options = [*OPTIONS, *(f"--AgentKernel.{name}={value}" for name, value in settings.items())]
        async with jupyter_server(folder / "notebooks", folder / "log", options=options) as server:
            notebooks = TaskNotebooks(server)
            async with AsyncExitStack() as closing:
                shared: dict[str, TaskNotebook] = {}
                alone = {task.kind: asyncio.Lock() for task in tasks}

                @asynccontextmanager
                async def opened(task: Task) -> AsyncIterator[TaskNotebook]:
                    async with alone[task.kind]:
                        if task.kind not in shared:
                            shared[task.kind] = await closing.enter_async_context(notebooks.open(task))
                        notebook = shared[task.kind]
                        yield LaterTurns(notebook, len((await notebook.stored())["items"]))

                for number in (IDLE, WORDS, RIGHT):
                    runs = [(task, number) for task in in_turn(tasks)]
                    await run_tasks(runs, opened, CellSettings(place="live"), take, at_once=4, pages=pages)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def results(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Results, None]:
    found: dict[tuple[str, int], TaskResult] = {}

    def take(result: TaskResult) -> None:
        found[result.key] = result

    await run_three_times(TASKS, tmp_path_factory.mktemp("tools"), take)
    yield found


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])
async def test_a_task_is_right_for_work_and_wrong_for_no_work_and_for_words(task: Task, results: Results) -> None:
    right = results[task.name, RIGHT]

    assert not right.wrong, right.turns
    assert len(right.turns[0].calls) >= 2
    for number in (IDLE, WORDS):
        result = results[task.name, number]
        assert result.wrong
        assert not result.broken
        assert result.turns[0].answer == ("I do not know." if number == IDLE else RIGHT_RUNS[task.name].answer)
    denied = [call.tool for call in right.turns[0].calls if call.status == "denied"]
    assert sorted(set(denied)) == sorted(task.forbidden)


def test_the_script_can_tell_the_prompts_apart() -> None:
    assert not [
        (one.name, other.name)
        for one in TASKS
        for other in TASKS
        if one is not other and own_words(one) in other.prompts[0]
    ]

"""Runs tasks in the way in which a user works: in ``%%agent`` cells of a notebook, one notebook for each task. Every
question of the agent is answered with "yes".

The expressions that check variables are evaluated in the kernel and, if the code ran there, in the draft or the
sandbox. The check succeeds if the expression is true in one of them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from agent_kernel.core.messages import Message
from agent_kernel.evaluation import figure_data
from agent_kernel.evaluation.answer_check import Observation, reason_wrong
from agent_kernel.evaluation.task import CHECKS, Task
from agent_kernel.evaluation.task_result import SUCCESS, CallResult, Program, TaskResult, TaskTurn
from agent_kernel.evaluation.tool_servers import PageServer
from agent_kernel.notebook.draft.draft_request import OUTCOME, draft_request

CELL_S = 600.0
YES = "y"
FIGURE_DATA = Path(figure_data.__file__)
MARK_FIGURES = """
import sys as _sys, types as _types
_figure_data = _types.ModuleType("figure_data")
exec({source!r}, _figure_data.__dict__)
_figure_data.mark_figures()
"""
HOLDS = "the check holds"
JUDGE = """
try:
    print({holds!r} if bool({expression}) else "no")
except Exception as _problem:
    print("no")
"""
WARM_UP = Task("warm-up", "chat", ("Hello!",))
OWN_CELL = "%agent in\n"
"""First line of a cell that checks variables. A cell that begins with an ``%agent`` command does not end the draft, so
that the draft can still be checked."""
PNG = "image/png"


class Cell(Protocol):
    """A cell that has run. ``status`` is ok, error or aborted. ``outputs`` have the form of nbformat. ``questions`` are
    the agent's questions that were answered while the cell ran."""

    @property
    def status(self) -> str: ...

    @property
    def outputs(self) -> Sequence[Mapping[str, Any]]: ...

    @property
    def questions(self) -> Sequence[str]: ...


class TaskNotebook(Protocol):
    """A notebook with its kernel, in a separate directory. Each method raises NotebookFailed if the server or the
    kernel ends."""

    async def run_cell(self, code: str, answer: str) -> Cell: ...

    async def stored(self) -> Mapping[str, Any]:
        """Return the stored items and turns of the notebook's conversation, in the form of ``GET
        sessions/{id}/items``."""
        ...

    async def run_in_sandbox(self, code: str) -> str:
        """Run code in the sandbox of the notebook's conversation, and return its standard output."""
        ...


class NotebookFailed(Exception):
    """The server or the kernel of a notebook ended, or refused a request."""


OpenNotebook = Callable[[Task], AbstractAsyncContextManager[TaskNotebook]]


@dataclass(frozen=True, slots=True)
class CellSettings:
    """Options of every ``%%agent`` cell; an empty option is left out. ``seconds`` is the time limit of a cell."""

    model: str = ""
    place: str = ""
    effort: str = ""
    seconds: float = CELL_S

    @property
    def line(self) -> str:
        options = {"--in": self.place, "--model": self.model, "--effort": self.effort}
        return " ".join(["%%agent", *(f"{flag} {value}" for flag, value in options.items() if value)])


async def run_tasks(
    tasks: Sequence[tuple[Task, int]],
    open_notebook: OpenNotebook,
    settings: CellSettings,
    take: Callable[[TaskResult], None],
    *,
    at_once: int = 1,
    pages: PageServer | None = None,
) -> None:
    """Run each (task, repetition), ``at_once`` of them at a time, and call ``take`` with each result as soon as it is
    known. ``open_notebook`` opens a new notebook for a task; ``pages`` serves the web pages of the tasks. If this call
    is cancelled, the running tasks end without a result. Raises the errors of ``take``."""
    waiting = iter(tasks)

    async def work() -> None:
        for task, repetition in waiting:
            take(await run_task(task, repetition, open_notebook, settings, pages))

    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(at_once, len(tasks))):
                workers.create_task(work())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def warm_up(open_notebook: OpenNotebook, settings: CellSettings) -> None:
    """Run one cell that the model answers, so that no task includes the time to load the model. Raises NotebookFailed,
    TimeoutError."""
    async with open_notebook(WARM_UP) as notebook, asyncio.timeout(settings.seconds):
        cell = await notebook.run_cell(f"{settings.line}\n{WARM_UP.prompts[0]}", YES)
        if error := _error(cell):
            raise NotebookFailed(f"the model does not answer: {error}")


async def run_task(
    task: Task,
    repetition: int,
    open_notebook: OpenNotebook,
    settings: CellSettings = CellSettings(),
    pages: PageServer | None = None,
) -> TaskResult:
    """Run one task in a new notebook and judge its answer. ``pages`` is required if the task has web pages. The result
    is ``broken`` if the server or the kernel ends, or a cell exceeds its time limit."""
    site = pages.publish(task, repetition) if pages else None
    task = _with_site(task, site.url) if site else task
    attempt = _Attempt(task, settings)
    holds = draws = None
    try:
        async with open_notebook(task) as notebook:
            await attempt.run(notebook)
            holds = await attempt.holds(notebook) if task.holds else None
            draws = attempt.draws() if task.draws else None
    except NotebookFailed as error:
        why = f"broken: {error}"
    except TimeoutError:
        why = f"broken: a cell took more than {settings.seconds:.0f} s"
    else:
        why = attempt.failure() or reason_wrong(
            task, attempt.observation(holds, draws, site.requested if site else set())
        )
    marks = {name: value for name in CHECKS if (value := getattr(task, name)) not in (None, "", (), {})}
    return TaskResult(
        name=task.name,
        kind=task.kind,
        held_out=task.held_out,
        wrong=why,
        seconds=attempt.seconds,
        repetition=repetition,
        broken=why.startswith("broken: "),
        turns=tuple(attempt.turns),
        marks=marks,
        holds=holds,
        draws=draws,
    )


class _Attempt:
    """One attempt at a task: runs its cells and collects their results."""

    def __init__(self, task: Task, settings: CellSettings) -> None:
        self._task = task
        self._settings = settings
        self._figures: list[Mapping[str, Any]] = []
        self._started = time.monotonic()
        self.turns: list[TaskTurn] = []
        self.seconds = 0.0

    async def run(self, notebook: TaskNotebook) -> None:
        """Run the setup and the prompts of the task. Raises NotebookFailed, TimeoutError."""
        if self._task.draws:
            mark = MARK_FIGURES.format(source=await asyncio.to_thread(FIGURE_DATA.read_text, encoding="utf-8"))
            await self._prepare(notebook, mark)
            if self._settings.place == "sandbox":
                await notebook.run_in_sandbox(mark)
        await self._prepare(notebook, self._task.setup)
        self._started, seen = time.monotonic(), 0
        for prompt in self._task.prompts:
            cell = await self._cell(notebook, f"{self._settings.line}\n{prompt}")
            self.seconds = time.monotonic() - self._started
            stored = await notebook.stored()
            messages = [Message.from_json(item["message"]) for item in stored["items"][seen:]]
            seen = len(stored["items"])
            turn = stored["turns"][-1] if stored["turns"] else {}
            self.turns.append(_turn_result(prompt, cell, messages, turn))
            self._figures = _figures(cell)

    async def holds(self, notebook: TaskNotebook) -> bool:
        """Return whether the task's expression ``holds`` is true in the kernel, or in the draft or sandbox of the last
        turn. An expression that raises an error counts as false."""
        judge = JUDGE.format(holds=HOLDS, expression=self._task.holds)
        if _holds(_text(await self._cell(notebook, OWN_CELL + judge))):
            return True
        where = self.turns[-1].where
        if where == "sandbox":
            return _holds(await notebook.run_in_sandbox(judge))
        if where == "draft":
            return _holds(_text(await self._cell(notebook, draft_request("judge", judge))))
        return False

    def draws(self) -> bool:
        """Return whether the task's expression ``draws`` is true of a figure of the last turn. It is safe to evaluate,
        because the author of the task wrote it."""
        return any(eval(self._task.draws, {"math": math, "figure": figure}) for figure in self._figures)

    def failure(self) -> str:
        """Return the reason why the last turn ended without an answer, or an empty string if it has one."""
        last = self.turns[-1]
        return f"the turn ended: {last.error.splitlines()[-1]}" if last.error and not last.answer else ""

    def observation(self, holds: bool | None, draws: bool | None, fetched: set[str]) -> Observation:
        last = self.turns[-1]
        last_output = next((program.output for program in reversed(last.programs) if program.status == SUCCESS), "")
        codes = tuple(program.code for program in last.programs)
        ran = frozenset(call.tool for turn in self.turns for call in turn.calls if call.status == SUCCESS)
        return Observation(last.answer, codes, holds, draws, last_output, ran, frozenset(fetched))

    async def _cell(self, notebook: TaskNotebook, code: str) -> Cell:
        async with asyncio.timeout(self._settings.seconds):
            return await notebook.run_cell(code, YES)

    async def _prepare(self, notebook: TaskNotebook, code: str) -> None:
        if code:
            cell = await self._cell(notebook, code)
            if cell.status != "ok":
                raise NotebookFailed(f"the setup failed: {_error(cell)}")


def _with_site(task: Task, url: str) -> Task:
    prompts = tuple(prompt.replace("{site}", url) for prompt in task.prompts)
    setup, holds = (text.replace("{site}", url) for text in (task.setup, task.holds))
    return replace(task, prompts=prompts, setup=setup, holds=holds)


def _turn_result(prompt: str, cell: Cell, messages: Sequence[Message], turn: Mapping[str, Any]) -> TaskTurn:
    results = {message.call_id: message for message in messages if message.role == "tool"}
    calls, programs = [], []
    for call in (call for message in messages for call in message.calls):
        result = results.get(call.id)
        status = (result.status if result else None) or ""
        calls.append(CallResult(call.name, status))
        if "code" in call.arguments:
            programs.append(Program(str(call.arguments["code"]), status, result.text if result else ""))
    return TaskTurn(
        prompt=prompt,
        answer=next((message.text for message in reversed(messages) if message.role == "assistant"), ""),
        programs=tuple(programs),
        notes=tuple(message.text for message in messages if message.hidden),
        questions=tuple(cell.questions),
        error=_error(cell),
        state=str(turn.get("state", "")),
        where=str(turn.get("where", "")),
        model=str(turn.get("model", "")),
        usage=dict(turn.get("usage", {})),
        record=dict(turn.get("record", {})),
        calls=tuple(calls),
    )


def _figures(cell: Cell) -> list[Mapping[str, Any]]:
    pictures = [output.get("data", {}).get(PNG) for output in cell.outputs]
    return [found for png in pictures if png and (found := figure_data.read_mark(png)) is not None]


def _holds(printed: str) -> bool:
    """Return whether the output ``printed`` of a check states its success. Only a whole line counts, because a
    traceback may quote the code of the check, which contains the same text."""
    return any(line.strip() == HOLDS for line in printed.splitlines())


def _text(cell: Cell) -> str:
    """Return the text that a cell printed, followed by the texts of the results of a draft."""
    printed = [str(output.get("text", "")) for output in cell.outputs if output["output_type"] == "stream"]
    outcomes = [output["data"][OUTCOME]["text"] for output in cell.outputs if OUTCOME in output.get("data", {})]
    return "\n".join([*printed, *outcomes])


def _error(cell: Cell) -> str:
    errors = [f"{output['ename']}: {output['evalue']}" for output in cell.outputs if output["output_type"] == "error"]
    return "\n".join(errors)

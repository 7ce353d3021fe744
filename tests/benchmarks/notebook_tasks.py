"""Measures task sets with ``agent-kernel eval``, and finds names of the worked examples that leaked into answers.

AGENT_KERNEL_BENCH_MODEL, _PROTOCOL (fence, native, auto) and _TASKS="name,name" choose what is measured; the server
takes its settings from the environment. A record of each task is written to build/benchmarks/.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from agent_kernel.cli.base.output import show
from agent_kernel.cli.eval import TABLE
from agent_kernel.evaluation.comparison import summarize
from agent_kernel.evaluation.result_file import EvaluationRun
from agent_kernel.evaluation.task_result import TaskResult

BUILD = Path(__file__).parents[2] / "build" / "benchmarks"
MODEL = os.environ.get("AGENT_KERNEL_BENCH_MODEL", "")
PROTOCOL = os.environ.get("AGENT_KERNEL_BENCH_PROTOCOL", "")
ONLY = os.environ.get("AGENT_KERNEL_BENCH_TASKS", "")
OF_EXAMPLES = (
    *("quillon", "heft", "guild", "forged", "by_guild", "depot", "9173", "38\\.64", "6353", "1080\\.01"),
    *("heft_ratio", "quillspan", "bladesmith", "Ostrel", "61\\.07", "1218"),
)
"""What no real data has; ``test_code_fence_prompt.py`` holds this list to the examples."""


async def measured(task_set: str, place: str, at_once: int = 4) -> list[TaskResult]:
    """Run ``agent-kernel eval`` on a task set with code in ``place``, and return the results. The command prints each
    result and the table.
    """
    what = "-".join(part for part in (task_set, place, MODEL, PROTOCOL) if part)
    path = result_path(what)
    chosen = {"--in": place, "--model": MODEL, "--protocol": PROTOCOL, "--only": ONLY}
    options = [word for flag, value in chosen.items() if value for word in (flag, value)]
    command = [sys.executable, "-m", "agent_kernel", "eval", task_set, "--at-once", str(at_once)]
    process = await asyncio.create_subprocess_exec(*command, *options, "--output", str(path), stdout=sys.__stderr__)
    assert await process.wait() == 0
    return EvaluationRun.read(path).results


def result_path(what: str) -> Path:
    return BUILD / f"tasks-{what.replace('/', '_')}.json"


def record(what: str, results: Sequence[TaskResult], seconds: float) -> None:
    """Write the results of another agent in the format of ``agent-kernel eval``, and print their table."""
    run = EvaluationRun("notebook", {"agent": what}, results=list(results), seconds=seconds)
    run.write(result_path(what))
    print(f"\n{what}: {seconds:.0f} s in all; {result_path(what)}")
    show(summarize(results), TABLE, as_json=False)


def texts(results: Iterable[TaskResult]) -> list[str]:
    """Return the programs, their outputs and the answers of all turns."""
    turns = [turn for result in results for turn in result.turns]
    programs = [text for turn in turns for program in turn.programs for text in (program.code, program.output)]
    return [*programs, *(turn.answer for turn in turns)]


def leaked(texts: Iterable[str]) -> list[str]:
    """Return the names and numbers of the worked examples that occur in these texts."""
    whole = "\n".join(texts)
    return [word for word in OF_EXAMPLES if re.search(rf"(?<![\w.]){word}", whole, re.IGNORECASE)]

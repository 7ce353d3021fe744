"""``agent-kernel eval``: measures how often the agent is right on a set of tasks, and compares two such runs."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from agent_kernel.cli.base.command import CACHE_DIR, JSON, Command, argument, exclusive, group, settings_of
from agent_kernel.cli.base.output import Column, printable, show
from agent_kernel.core.errors import EngineError, InvalidRequest
from agent_kernel.core.process_directory import ProcessDirectory
from agent_kernel.core.setting_declaration import split_list
from agent_kernel.core.settings import SETTINGS
from agent_kernel.core.version import __version__
from agent_kernel.evaluation.comparison import Comparison, compare, summarize
from agent_kernel.evaluation.dabench import QUESTIONS, load_dabench
from agent_kernel.evaluation.result_file import EvaluationRun
from agent_kernel.evaluation.task import TASK_SETS, Task, load_tasks, task_set_names
from agent_kernel.evaluation.task_result import TaskResult
from agent_kernel.evaluation.task_runner import CELL_S, CellSettings, NotebookFailed, run_tasks, warm_up
from agent_kernel.evaluation.tool_servers import PageServer, tool_settings

TEMPORARY = "agent-kernel-eval-"
"""Prefix of the temporary directory of a run."""
PLACES = tuple(filter(None, SETTINGS["python_in"].choices))
COMPARED_OPTIONS = ("model", "engine", "protocol", "effort", "place")
"""Options that affect the results. A run can be resumed only with the values that it began with."""
OF_ANOTHER_KERNEL = ("AGENT_KERNEL_URL", "AGENT_KERNEL_ID", "AGENT_KERNEL_TOKEN", "JPY_PARENT_PID", "JPY_SESSION_NAME")
"""Environment variables that belong to a kernel. If this command runs in a kernel, they must not reach the server that
it starts."""
NO_LIMIT = "--ZMQChannelsWebsocketConnection.limit_rate=False"
"""Option of Jupyter that removes the limit on output. With the limit, Jupyter would drop a large figure, and a right
answer would be judged wrong."""
STOPPING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that stop the run in the same way as Ctrl-C. Without handlers for them, the server of the run would continue,
with a model in memory."""
TABLE = {
    "kind": Column("KIND"),
    "right": Column("RIGHT", right=True),
    "tasks": Column("OF", right=True),
    "seconds": Column("MEDIAN S", right=True),
    "prompt_tokens": Column("PROMPT", right=True),
    "completion_tokens": Column("COMPLETION", right=True),
    "programs": Column("PROGRAMS", right=True),
    "failed_programs": Column("FAILED", right=True),
    "votes": Column("VOTES", right=True),
    "votes_agree": Column("AGREED", right=True),
    "votes_tried": Column("OF TRIED", right=True),
}
COMPARE_ARGUMENTS = (
    argument("first", type=Path, metavar="A.json", help="result of a run"),
    argument("second", type=Path, metavar="B.json", help="result of another run of the same tasks"),
    JSON,
)


# ------------------------------------------------------------------------------------------------------------------ run


def run(args: argparse.Namespace) -> int:
    """Run the tasks and print a summary. Return 0 when every task has a result. After Ctrl-C, the file contains the
    results so far."""
    tasks = _chosen_tasks(args)
    outcome = _start(args)
    path = args.output or args.resume or _default_path(args)
    remaining = _remaining(tasks, args.repeat, outcome)
    outcome.write(path)
    print(
        f"{len(remaining)} of {len(tasks) * args.repeat} tasks to run; results go to {path}",
        file=sys.stderr,
        flush=True,
    )
    if remaining:
        try:
            asyncio.run(_measure(args, remaining, outcome, path))
        except asyncio.CancelledError:  # one of the signals STOPPING cancelled this task
            raise KeyboardInterrupt from None
    if args.json:
        print(json.dumps(outcome.to_json(), indent=2, ensure_ascii=False))
    else:
        show(summarize(outcome.results), TABLE, as_json=False)
    return 0


async def _measure(args: argparse.Namespace, tasks: list[tuple[Task, int]], outcome: EvaluationRun, path: Path) -> None:
    # These modules are imported here, because they load tornado, nbformat and Jupyter's client, which no other command
    # needs.
    from jupyter_ext.headless.notebook_kernel import TaskNotebooks
    from jupyter_ext.headless.sandbox_inspection import OPTIONS
    from jupyter_ext.headless.server_process import ServerFailed, jupyter_server

    this = asyncio.current_task()
    assert this is not None
    for number in STOPPING:
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)
    done, before, started = 0, outcome.seconds, time.monotonic()

    def take(result: TaskResult) -> None:
        nonlocal done
        done += 1
        outcome.results = [earlier for earlier in outcome.results if earlier.key != result.key] + [result]
        outcome.seconds = before + time.monotonic() - started
        outcome.write(path)
        print(f"[{done}/{len(tasks)}] {describe(result)}", file=sys.stderr, flush=True)

    settings = CellSettings(args.model, args.place, args.effort, seconds=args.cell_timeout)
    with ProcessDirectory(TEMPORARY) as directory, PageServer() as pages:
        root = directory / "notebooks"
        root.mkdir()
        log = directory / "server.log"
        try:
            needed = tool_settings([task for task, _ in tasks], pages, directory)
            options = [*OPTIONS, *_server_options(args, needed)]
            async with jupyter_server(root, log, env=_environment(), options=options) as server:
                notebooks = TaskNotebooks(server)
                if await notebooks.loads_model(args.model):
                    print("loading the model ...", file=sys.stderr, flush=True)
                    await warm_up(notebooks.open, settings)
                outcome.facts = {**outcome.facts, "engine": await notebooks.engine()}
                await run_tasks(tasks, notebooks.open, settings, take, at_once=args.at_once, pages=pages)
        except (ServerFailed, NotebookFailed, TimeoutError) as error:
            raise EngineError(str(error) or f"The model took more than {settings.seconds:.0f} s to load.") from error


def describe(result: TaskResult) -> str:
    """Return the line that is printed when a task has ended. For a held-out task, it does not contain the right
    answer."""
    words = "right" if result.is_right else "wrong"
    if result.wrong and not result.held_out:
        words = f"wrong: {printable(result.wrong)}"
    if result.broken:
        words = printable(result.wrong)
    tokens = f"{result.prompt_tokens}+{result.completion_tokens} tokens"
    failed = f", {result.failed_programs} of {len(result.programs)} programs failed" if result.failed_programs else ""
    votes = "".join(f", {vote.agree} of {vote.tried} agreed" for vote in result.votes)
    return f"{result.label}: {words} ({result.seconds:.1f} s, {tokens}{failed}{votes})"


def _environment() -> dict[str, str]:
    """Return the environment variables for the server: those of this process without OF_ANOTHER_KERNEL. They include
    the settings and the API keys of engines."""
    return {name: value for name, value in os.environ.items() if name not in OF_ANOTHER_KERNEL}


def _server_options(args: argparse.Namespace, needed: Mapping[str, str]) -> list[str]:
    """Return command-line options for the server, from the settings on this command line and the settings ``needed`` by
    the tasks. They override the environment variables and the user's configuration files."""
    chosen = {
        "engine": args.engine,
        "tool_protocol": args.protocol,
        "cache_dir": args.cache_dir and args.cache_dir.absolute(),
        # A user who passes a URL as --model has decided where the conversation is sent.
        "allow_urls": "True" if "://" in args.model else "",
        "transcripts": "off",
        **needed,
    }
    return [NO_LIMIT, *(f"--AgentKernel.{name}={value}" for name, value in chosen.items() if value)]


def _chosen_tasks(args: argparse.Namespace) -> list[Task]:
    tasks = _load(args.tasks)
    if unknown := set(args.only) - {task.name for task in tasks}:
        raise InvalidRequest(f"{args.tasks} has no task named {min(unknown)!r}.")
    tasks = [task for task in tasks if not args.only or task.name in args.only]
    if args.held_out or args.tuned:
        tasks = [task for task in tasks if task.held_out == args.held_out]
    if not tasks:
        raise InvalidRequest(f"{args.tasks} has no tasks that the options --only, --held-out and --tuned select.")
    return tasks


def _load(name: str) -> list[Task]:
    if name in task_set_names():
        return load_tasks(TASK_SETS / f"{name}.toml")
    path = Path(name)
    if path.is_dir():
        if not (path / QUESTIONS).exists():
            raise InvalidRequest(f"{path} has no {QUESTIONS}, so it is not a DABench directory.")
        return load_dabench(path)
    if not path.exists():
        names = ", ".join(task_set_names())
        raise InvalidRequest(f"There is no task set {name!r}.", hint=f"Name one of {names}, or give a path.")
    return load_tasks(path)


def _start(args: argparse.Namespace) -> EvaluationRun:
    """Return the run to resume, or a new one. Raises InvalidRequest if the run to resume has other tasks or options."""
    options = {name: getattr(args, name) or "" for name in COMPARED_OPTIONS}
    name = args.tasks if args.tasks in task_set_names() else Path(args.tasks).stem
    if args.resume is None:
        facts = {"version": __version__, "started": datetime.now(UTC).isoformat(timespec="seconds")}
        return EvaluationRun(name, options, {**facts, "at_once": args.at_once})
    earlier = EvaluationRun.read(args.resume)
    changed = [key for key, value in options.items() if earlier.options.get(key, "") != value]
    if changed or earlier.task_set != name:
        changed_options = (
            ", ".join(f"{key} {earlier.options.get(key) or '(default)'}" for key in changed) or earlier.task_set
        )
        raise InvalidRequest(
            f"Cannot resume {args.resume}: its results were measured with other options ({changed_options}).",
            hint="Use the same options, or start a new file with --output.",
        )
    return earlier


def _remaining(tasks: Sequence[Task], repeat: int, outcome: EvaluationRun) -> list[tuple[Task, int]]:
    done = {result.key for result in outcome.results if not result.broken}
    rounds = [(task, repetition) for repetition in range(1, repeat + 1) for task in tasks]
    return [(task, repetition) for task, repetition in rounds if (task.name, repetition) not in done]


def _default_path(args: argparse.Namespace) -> Path:
    name = f"{Path(args.tasks).stem}-{datetime.now().strftime('%Y%m%d-%H%M%S')}.json"
    return settings_of(args).cache_dir / "evaluations" / name


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError("must be a number of 1 or more")
    return int(text)


# -------------------------------------------------------------------------------------------------------------- compare


def compare_runs(args: argparse.Namespace) -> int:
    """Compare two runs by the tasks that both contain. Print the result for the tasks that were used for tuning, for
    the held-out tasks, and for all tasks. Return 0."""
    first, second = EvaluationRun.read(args.first).results, EvaluationRun.read(args.second).results
    halves = {"tuned": False, "held out": True}
    rows = {
        name: compare([a for a in first if a.held_out == half], [b for b in second if b.held_out == half])
        for name, half in halves.items()
    }
    whole = compare(first, second)
    if not whole.tasks:
        raise InvalidRequest(f"{args.first} and {args.second} have no task in common.")
    if args.json:
        print(json.dumps({**whole.to_json(), "halves": {name: row.to_json() for name, row in rows.items()}}, indent=2))
        return 0
    for name, row in [*rows.items(), ("all", whole)]:
        if row.tasks:
            print("\n".join(_comparison_lines(name, row)))
    return 0


def _comparison_lines(name: str, comparison: Comparison) -> list[str]:
    (first, second), (first_s, second_s) = comparison.right, comparison.seconds
    first_tokens, second_tokens = comparison.completion_tokens
    lines = [
        f"{name}: {first} and {second} of {comparison.tasks} right; "
        f"only B {len(comparison.better)}, only A {len(comparison.worse)}, sign test p = {comparison.p_value:.3g}",
        f"  median seconds {first_s:g} and {second_s:g}, "
        f"median completion tokens {first_tokens:g} and {second_tokens:g}",
    ]
    if name == "all":
        lines += [f"  only B right: {', '.join(comparison.better)}"] if comparison.better else []
        lines += [f"  only A right: {', '.join(comparison.worse)}"] if comparison.worse else []
        if comparison.only_first or comparison.only_second:
            lines.append(f"  not compared: {comparison.only_first} results of A, {comparison.only_second} of B")
    return lines


RUN_ARGUMENTS = (
    argument(
        "tasks",
        help=f"a task set: {', '.join(task_set_names())}, a TOML file, or a directory in DABench's public layout",
    ),
    argument("--model", default="", help="the model that answers, in the form that %%%%agent --model accepts"),
    argument("--engine", choices=SETTINGS["engine"].choices or None, help=SETTINGS["engine"].help),
    argument("--protocol", choices=SETTINGS["tool_protocol"].choices, help=SETTINGS["tool_protocol"].help),
    argument("--in", dest="place", choices=PLACES, default="", help="where Python runs (default: as configured)"),
    argument("--effort", choices=SETTINGS["effort"].choices, default="", help=SETTINGS["effort"].help),
    argument("--at-once", type=_count, default=1, metavar="N", help="tasks that run at the same time (default: 1)"),
    argument("--repeat", type=_count, default=1, metavar="N", help="run each task N times"),
    argument("--only", type=split_list, default=(), metavar="NAME,...", help="only these tasks"),
    exclusive(
        argument("--held-out", action="store_true", help="only tasks that are held out of tuning"),
        argument("--tuned", action="store_true", help="only tasks that are not held out"),
    ),
    argument("--cell-timeout", type=float, default=CELL_S, metavar="S", help="longest time of one cell in seconds"),
    argument("--output", type=Path, metavar="FILE.json", help="result file (default: in the cache directory)"),
    argument("--resume", type=Path, metavar="FILE.json", help="continue this result: skip the tasks that it contains"),
    JSON,
    CACHE_DIR,
)
EVAL = group(
    "eval",
    "measure how often the agent is right on a set of tasks (run, the default), and compare two runs",
    Command("run", "run a task set in notebooks of a server of its own", run, RUN_ARGUMENTS),
    Command("compare", "compare two results task by task, with a sign test", compare_runs, COMPARE_ARGUMENTS),
    default="run",
)

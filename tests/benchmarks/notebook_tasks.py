"""The tasks of ``notebook_tasks.toml``, and what makes an answer right.

A number counts when it is there as it should be rounded, in whatever way numbers are written; of other numbers, which
are neither in the question nor known to belong to the answer, at most one may stand beside it: a list that happens to
have the right one in it is no answer.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TASKS = Path(__file__).with_name("notebook_tasks.toml")
FILE_TASKS = Path(__file__).with_name("file_tasks.toml")
BUILD = Path(__file__).parents[2] / "build" / "benchmarks"
KINDS = ("computation", "pandas", "plot", "file", "follow-up", "chat")
NUMBER = re.compile(r"(?<![\w.])[-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
STRANGERS = 1
OF_EXAMPLES = ("quillon", "heft", "guild", "forged", "by_guild", "depot", "9173", "38\\.64", "6353", "1080\\.01")
"""What no real data has; ``test_fence_prompt.py`` holds this list to the examples."""


@dataclass(frozen=True, slots=True)
class Task:
    """``decimals`` is how exact ``number`` must be. ``holds`` and ``draws`` are expressions, see the file."""

    name: str
    kind: str
    prompts: tuple[str, ...]
    solution: tuple[str, ...]
    held_out: bool = False
    setup: str = ""
    number: float | None = None
    decimals: int = 0
    also: tuple[float, ...] = ()
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    holds: str = ""
    draws: str = ""

    @property
    def is_chat(self) -> bool:
        return self.kind == "chat"


@dataclass(frozen=True, slots=True)
class Found:
    """What was there after the last turn, in which ``codes`` were run; None where the task does not ask."""

    answer: str
    codes: tuple[str, ...] = ()
    holds: bool | None = None
    draws: bool | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """``wrong`` says why, empty = right. ``steps`` are calls of code, of all turns; ``turns`` is what happened, and
    ``first_code`` the code of the first call."""

    task: Task
    wrong: str
    seconds: float
    prompt_tokens: int = 0
    completion_tokens: int = 0
    steps: int = 0
    chat_code: bool = False
    turns: tuple[str, ...] = field(default=())
    first_code: str = ""


def tasks(path: Path = TASKS) -> list[Task]:
    """Raises TypeError for a task with a field that does not exist."""
    body: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    return [_task(entry) for entry in body["task"]]


def _task(entry: Mapping[str, Any]) -> Task:
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return Task(**given)


def wrong(task: Task, found: Found, *, code_is_chat: bool = False) -> str:
    """Why it is not right, empty if it is. ``code_is_chat``: for agents that can only speak by code."""
    if not found.answer.strip() and not (task.holds or task.draws):
        return "no answer"
    if task.is_chat and found.codes and not code_is_chat:
        return "ran code for chat"
    if found.holds is False:
        return "the variables are not as asked"
    if found.draws is False:
        return "no such picture"
    if missing := [pattern for pattern in task.says if not re.search(pattern, found.answer, re.IGNORECASE)]:
        return f"does not say {missing[0]}"
    if said := [pattern for pattern in task.never if re.search(pattern, found.answer, re.IGNORECASE)]:
        return f"says {said[0]}"
    return _number_wrong(task, found.answer) if task.number is not None else ""


def numbers(text: str) -> list[float]:
    """Every number in a text, in figures or, up to twelve, in words."""
    figures = [float(match[0].replace(",", "").replace("−", "-")) for match in NUMBER.finditer(text)]
    words = [float(WORDS.index(word)) for word in re.findall(r"[a-z]+", text.lower()) if word in WORDS]
    return figures + words


def table(outcomes: Sequence[Outcome]) -> str:
    """A line for each kind and one for the sum: right of all, and of the two halves."""
    rows = ["| kind | right | dev | held out |", "|---|---|---|---|"]
    for kind in (*KINDS, "all"):
        those = [outcome for outcome in outcomes if kind in (outcome.task.kind, "all")]
        halves = [[item for item in those if item.task.held_out is held_out] for held_out in (False, True)]
        rows.append(f"| {kind} | " + " | ".join(_share(part) for part in (those, *halves)) + " |")
    return "\n".join(rows)


def report(outcomes: Iterable[Outcome], *, held_out: bool = False) -> str:
    """What happened in the tasks that came out wrong; of those held out the names only, unless asked for."""
    lines = []
    for outcome in outcomes:
        if outcome.wrong:
            lines.append(f"WRONG {outcome.task.kind} {outcome.task.name}: {outcome.wrong}")
            if held_out or not outcome.task.held_out:
                lines += ["    " + line for turn in outcome.turns for line in turn.splitlines()]
    return "\n".join(lines)


def leaked(texts: Iterable[str]) -> list[str]:
    """Names and numbers of the worked examples that stand in these codes, outputs and answers."""
    whole = "\n".join(texts)
    return [word for word in OF_EXAMPLES if re.search(rf"(?<![\w.]){word}", whole, re.IGNORECASE)]


def record(what: str, results: Sequence[Outcome], seconds: float) -> Path:
    """Writes build/benchmarks/tasks-WHAT.json."""
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / f"tasks-{what.replace('/', '_').strip('-')}.json"
    rows: list[dict[str, Any]] = [
        {
            "name": result.task.name,
            "kind": result.task.kind,
            "held_out": result.task.held_out,
            "wrong": result.wrong,
            "seconds": round(result.seconds, 1),
            "prompt_tokens": result.prompt_tokens,
            "completion_tokens": result.completion_tokens,
            "steps": result.steps,
            "turns": list(result.turns),
        }
        for result in results
    ]
    path.write_text(json.dumps({"what": what, "seconds": round(seconds), "tasks": rows}, indent=1), encoding="utf-8")
    return path


def _number_wrong(task: Task, answer: str) -> str:
    assert task.number is not None
    near = 0.5 * 10**-task.decimals * 1.0001 if task.decimals else 1e-9
    asked = numbers(" ".join(task.prompts))
    told = numbers(answer)
    if not any(abs(number - task.number) <= near for number in told):
        return f"does not say {task.number:g}"
    known = [*asked, *task.also]
    strangers = {n for n in told if abs(n - task.number) > near and not any(abs(n - k) < 1e-9 for k in known)}
    return "says other numbers as well" if len(strangers) > STRANGERS else ""


def _share(outcomes: Sequence[Outcome]) -> str:
    return f"{sum(not outcome.wrong for outcome in outcomes)} of {len(outcomes)}"

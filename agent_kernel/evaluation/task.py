"""Defines the tasks of an evaluation, and loads them from TOML files."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import InvalidRequest

TASK_SETS = Path(__file__).with_name("task_sets")


@dataclass(frozen=True, slots=True)
class Task:
    """Questions for a notebook, and the checks of the answer to the last question.

    ``setup`` is code that runs in the kernel first; ``files`` are copied into the notebook's directory. The checks:

    - ``number``: the answer contains this number, rounded to ``decimals`` places. With ``decimals`` 0 it must be
      exact. The answer may also contain the numbers in ``also``.
    - ``says``: the answer matches all of these regular expressions.
    - ``never``: the answer matches none of these regular expressions.
    - ``holds``: this Python expression over the variables of the answer's code is true at the end.
    - ``draws``: this Python expression over ``figure`` is true of at least one figure that was shown (see
      ``figure_data``).
    - ``values``: the answer states these values in the form ``@name[value]``.
    - ``fetched``: these paths of ``serves`` were requested.
    - ``ran``: a call of each of these tools succeeded.
    - ``forbidden``: no call of these tools succeeded. The server's policy denies them.

    ``serves`` maps paths to the texts of web pages. The address of these pages replaces ``{site}`` in prompts, setup
    and ``holds``. A task of the kind chat is right only if no code ran for its last prompt. ``solution`` is code that
    solves the task, or the text of a right answer to a chat task. Tests of the checks use it.
    """

    name: str
    kind: str
    prompts: tuple[str, ...]
    solution: tuple[str, ...] = ()
    held_out: bool = False
    setup: str = ""
    number: float | None = None
    decimals: int = 0
    also: tuple[float, ...] = ()
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    holds: str = ""
    draws: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    serves: Mapping[str, str] = field(default_factory=dict)
    fetched: tuple[str, ...] = ()
    ran: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    @property
    def is_chat(self) -> bool:
        return self.kind == "chat"


REQUIRED = {field_.name for field_ in fields(Task) if field_.default is MISSING and field_.default_factory is MISSING}
CHECKS = ("number", "says", "never", "holds", "draws", "values", "fetched", "ran", "forbidden")
TEXTS = ("name", "kind", "setup", "holds", "draws")
LISTS: Mapping[str, tuple[type, ...]] = {
    "prompts": (str,),
    "solution": (str,),
    "also": (int, float),
    "says": (str,),
    "never": (str,),
    "fetched": (str,),
    "ran": (str,),
    "forbidden": (str,),
}
TABLES = ("values", "serves")
OF_FILES = {field_.name for field_ in fields(Task)} - {"files"}
"""The fields of Task that a TOML file may contain."""


def task_set_names() -> list[str]:
    """Return the names of the task sets that come with agent-kernel."""
    return sorted(path.stem for path in TASK_SETS.glob("*.toml"))


def load_tasks(path: Path) -> list[Task]:
    """Return the tasks of a TOML file. Raises InvalidRequest for a file that cannot be read, an unknown field, a field
    that is missing or has the wrong type, two tasks with the same name, and a task without a check."""
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidRequest(
            f"The task set {path} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from error
    entries = body.get("task")
    if set(body) != {"task"} or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidRequest(f"The task set {path} must consist of [[task]] tables.")
    return check_names([_parse_task(entry, path) for entry in entries], path)


def check_names(tasks: list[Task], path: Path) -> list[Task]:
    """Return ``tasks`` unchanged. Raises InvalidRequest if two of them have the same name, or if there are none.
    ``path`` is named in the error."""
    if twice := [name for name, count in Counter(task.name for task in tasks).items() if count > 1]:
        raise InvalidRequest(f"The task set {path} has several tasks named {twice[0]!r}.")
    if not tasks:
        raise InvalidRequest(f"The task set {path} has no tasks.")
    return tasks


def _parse_task(entry: Mapping[str, Any], path: Path) -> Task:
    where = f"The task {str(entry.get('name', '?'))!r} of {path}"
    if unknown := set(entry) - OF_FILES:
        raise InvalidRequest(f"{where} has the unknown field {min(unknown)!r}.")
    if missing := REQUIRED - set(entry):
        raise InvalidRequest(f"{where} lacks the field {min(missing)!r}.")
    for name, value in entry.items():
        if not _is_of_type(name, value):
            raise InvalidRequest(f"{where}: {name} has the wrong type: {type(value).__name__}.")
    if not any(entry.get(name) not in (None, "", [], {}) for name in CHECKS):
        raise InvalidRequest(f"{where} has no check; it needs at least one of {', '.join(CHECKS)}.")
    if unserved := set(entry.get("fetched", ())) - set(entry.get("serves", {})):
        raise InvalidRequest(f"{where} serves no page {min(unserved)!r}.")
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return Task(**given)


def _is_of_type(name: str, value: Any) -> bool:
    if name in TEXTS:
        return isinstance(value, str)
    if name in LISTS:
        return isinstance(value, list) and all(isinstance(item, LISTS[name]) for item in value)
    if name in TABLES:
        return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    if name == "held_out":
        return isinstance(value, bool)
    if name == "decimals":
        return type(value) is int and value >= 0
    return type(value) in (int, float) and math.isfinite(value)

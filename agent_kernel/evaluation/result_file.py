"""Writes and reads the JSON file with the results of a run. The file is written after each task, by one rename, so that
a stopped run can be resumed from it."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from agent_kernel.core.atomic_file import replace_file
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.evaluation.task_result import TaskResult

FORMAT = 1
PREFIX = "agent-kernel-eval-"
LOCK = "run.lock"
YOUNG_S = 60.0
"""Age in seconds below which a directory is left alone, because its run may not hold the lock yet."""


@dataclass(slots=True)
class EvaluationRun:
    """One run of a task set. ``options`` are the command's options that affect the results. ``facts`` describe the
    version of agent-kernel and the engine. ``seconds`` is the total time of all tasks."""

    task_set: str
    options: Mapping[str, Any]
    facts: Mapping[str, Any] = field(default_factory=dict)
    results: list[TaskResult] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "task_set": self.task_set,
            "options": dict(self.options),
            "facts": dict(self.facts),
            "seconds": round(self.seconds, 1),
            "right": sum(result.is_right for result in self.results),
            "tasks": [result.to_json() for result in self.results],
        }

    def write(self, path: Path) -> None:
        """Write the complete file in one step, by a rename. Raises InvalidRequest if it cannot be written."""
        data = json.dumps(self.to_json(), indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, data, mode=0o644)
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be written: {error.strerror}.") from error

    @classmethod
    def read(cls, path: Path) -> EvaluationRun:
        """Read a result file. Raises InvalidRequest if the file cannot be read or is not a result of ``agent-kernel
        eval``."""
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidRequest(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise InvalidRequest(f"{path} is not a result of this version of agent-kernel eval.")
        try:
            results = [TaskResult.from_json(task) for task in body["tasks"]]
            return cls(body["task_set"], body["options"], body["facts"], results, body["seconds"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequest(f"{path} is not a complete result of agent-kernel eval: {error!r}.") from error


# The temporary directory of an evaluation run.


@contextmanager
def run_directory() -> Iterator[Path]:
    """Create the directory of a run and remove it at the end. Directories of killed runs are removed first.

    A run holds a lock in its directory. The system releases the lock when the process ends, so a directory without a
    lock belongs to no running evaluation.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, FileLock(Path(name) / LOCK):
        yield Path(name)


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.glob(f"{PREFIX}*"):
        with suppress(OSError, Timeout):  # it belongs to another user, or its run holds the lock
            if time.time() - directory.lstat().st_mtime > YOUNG_S and not directory.is_symlink():
                with FileLock(directory / LOCK, timeout=0):
                    shutil.rmtree(directory, ignore_errors=True)

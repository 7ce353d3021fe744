"""Writes and reads the JSON file with the results of a run. The file is written after each task, by one rename, so that
a stopped run can be resumed from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_kernel.core.atomic_file import replace_file
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.evaluation.task_result import TaskResult

FORMAT = 1


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

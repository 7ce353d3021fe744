"""Loads DABench (InfiAgent-DABench, ICML 2024) from a directory in its public layout.

``da-dev-questions.jsonl`` has an object for each question (id, question, constraints, format, file_name, level).
``da-dev-labels.jsonl`` has the answers to the questions (id, common_answers: pairs of name and value).
``da-dev-tables/`` contains the data files. agent-kernel does not include any of these files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.evaluation.task import Task, check_names

QUESTIONS = "da-dev-questions.jsonl"
LABELS = "da-dev-labels.jsonl"
TABLES = "da-dev-tables"
PROMPT = """\
{question}

The data is in the file "{file_name}".

{constraints}

End your answer with the following, in exactly this form:
{format}"""


def load_dabench(directory: Path) -> list[Task]:
    """Return a task for each question. The level of the question becomes the kind of the task. Raises InvalidRequest
    for a file that is missing or cannot be read, for a question without a label or table, and if two questions have the
    same id."""
    labels = {str(body["id"]): body for body in _lines(directory / LABELS, {"id", "common_answers"})}
    questions = _lines(directory / QUESTIONS, {"id", "question", "file_name", "format"})
    return check_names([_read_task(body, labels, directory) for body in questions], directory)


def _read_task(body: dict[str, Any], labels: dict[str, dict[str, Any]], directory: Path) -> Task:
    id, table = str(body["id"]), directory / TABLES / str(body["file_name"])
    if id not in labels:
        raise InvalidRequest(f"The question {id} of {directory} has no label in {LABELS}.")
    if table.parent != directory / TABLES or not table.is_file():
        raise InvalidRequest(f"The question {id} of {directory} is about {table}, which does not exist.")
    prompt = PROMPT.format_map({"constraints": "", **body})
    try:
        values = {str(name): str(value) for name, value in labels[id]["common_answers"]}
    except (TypeError, ValueError):
        raise InvalidRequest(f"The label {id} of {directory} is not a list of pairs of name and value.") from None
    return Task(id, str(body.get("level", "question")), (prompt,), values=values, files=(table,))


def _lines(path: Path, fields: set[str]) -> list[dict[str, Any]]:
    """Return the objects of a JSON Lines file. Raises InvalidRequest if the file cannot be read, or if an object lacks
    one of the ``fields``."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        bodies = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    for number, body in enumerate(bodies, 1):
        if not isinstance(body, dict) or not fields <= set(body):
            raise InvalidRequest(f"Line {number} of {path} must be an object with {', '.join(sorted(fields))}.")
    return bodies

from __future__ import annotations

from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.evaluation.task import TASK_SETS, load_tasks, task_set_names

TASK = '[[task]]\nname = "sum"\nkind = "computation"\nprompts = ["What is 20 + 22?"]\nnumber = 42\n'


def load_error(folder: Path, text: str) -> str:
    """Return the error for a task set with this text; empty if it is valid."""
    path = folder / "tasks.toml"
    path.write_text(text)
    try:
        load_tasks(path)
    except InvalidRequest as error:
        return str(error)
    return ""


def test_a_task_has_what_its_table_says(tmp_path: Path) -> None:
    path = tmp_path / "tasks.toml"
    path.write_text(TASK + 'decimals = 1\nalso = [20, 2.5]\nheld_out = true\nsetup = "x = 1"\n')
    (task,) = load_tasks(path)

    assert (task.name, task.kind, task.prompts, task.number) == ("sum", "computation", ("What is 20 + 22?",), 42)
    assert (task.decimals, task.also, task.held_out, task.setup) == (1, (20, 2.5), True, "x = 1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TASK + "colour = 3\n", "unknown field 'colour'"),
        (TASK + 'files = ["a.csv"]\n', "unknown field 'files'"),
        (TASK + TASK, "several tasks named 'sum'"),
        (TASK.replace('kind = "computation"\n', ""), "lacks the field 'kind'"),
        (TASK.replace("number = 42\n", ""), "no check"),
        (TASK.replace("number = 42", 'number = "42"'), "number has the wrong type"),
        (TASK.replace('["What is 20 + 22?"]', '"What is 20 + 22?"'), "prompts has the wrong type"),
        (TASK + "decimals = -1\n", "decimals has the wrong type"),
        (TASK + 'held_out = "yes"\n', "held_out has the wrong type"),
        (TASK + 'serves = ["/a.txt"]\n', "serves has the wrong type"),
        (TASK + 'fetched = ["/a.txt"]\n', "serves no page '/a.txt'"),
        ("", "must consist of [[task]] tables"),
        ("task = []\n", "has no tasks"),
        ("[[task]\n", "cannot be read"),
    ],
)
def test_a_mistake_in_a_task_set_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    refused = load_error(tmp_path, text)

    assert words in refused
    assert "tasks.toml" in refused


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        load_tasks(tmp_path / "none.toml")


@pytest.mark.parametrize("name", task_set_names())
def test_half_of_each_kind_of_a_task_set_that_comes_along_is_held_out(name: str) -> None:
    tasks = load_tasks(TASK_SETS / f"{name}.toml")

    assert tasks
    for kind in {task.kind for task in tasks}:
        those = [task.held_out for task in tasks if task.kind == kind]
        assert abs(2 * sum(those) - len(those)) <= 1, kind


@pytest.mark.parametrize(
    ("name", "size", "kinds"),
    [
        ("notebook", 60, {"computation", "pandas", "plot", "file", "follow-up", "chat"}),
        ("files", 20, {"file"}),
        ("unseen", 40, {"file", "steps", "repair", "table"}),
        ("independent", 28, {"file", "steps", "repair", "table"}),
        ("tools", 40, {"read", "transform", "plot", "save", "fix", "web", "mcp", "several", "refuse"}),
    ],
)
def test_a_task_set_has_its_tasks(name: str, size: int, kinds: set[str]) -> None:
    tasks = load_tasks(TASK_SETS / f"{name}.toml")

    assert len(tasks) == size
    assert {task.kind for task in tasks} == kinds


def test_no_task_is_in_two_sets() -> None:
    names = [task.name for name in task_set_names() for task in load_tasks(TASK_SETS / f"{name}.toml")]

    assert len(names) == len(set(names))

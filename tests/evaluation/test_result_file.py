from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.evaluation.result_file import EvaluationRun
from agent_kernel.evaluation.task_result import Program, TaskResult, TaskTurn

TURN = TaskTurn(
    "What is 20 + 22?",
    "It is 42.",
    (Program("1 / 0", "error", "ZeroDivisionError"), Program("20 + 22", "success", "42")),
    notes=("Variables: none",),
    questions=("Run it?",),
    where="draft",
    usage={"prompt_tokens": 100, "completion_tokens": 7, "seconds": 1.25},
    record={"asides": {"notices": [{"at": 0, "level": "info", "text": "slow"}]}},
)
RESULT = TaskResult("sum", "computation", True, "", 1.5, turns=(TURN, TURN), marks={"number": 42, "also": [1, 2]})


def test_a_result_has_what_a_reader_needs_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = EvaluationRun("notebook", {"place": "draft"}, {"version": "1"}, [RESULT], 3.0)
    run.write(tmp_path / "below" / "run.json")
    body = json.loads((tmp_path / "below" / "run.json").read_text())
    (task,) = body["tasks"]

    assert (body["task_set"], body["options"], body["right"]) == ("notebook", {"place": "draft"}, 1)
    assert (task["programs"], task["failed_programs"], task["prompt_tokens"], task["completion_tokens"]) == (
        4,
        2,
        200,
        14,
    )
    assert task["turns"][0]["programs"][0] == {"code": "1 / 0", "status": "error", "output": "ZeroDivisionError"}
    assert EvaluationRun.read(tmp_path / "below" / "run.json") == run


def disk_full(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_write_that_fails_leaves_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    EvaluationRun("a", {}).write(path)
    earlier = path.read_bytes()
    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(InvalidRequest, match="cannot be written"):
        EvaluationRun("b", {}).write(path)

    assert path.read_bytes() == earlier
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1}', '{"format": 1, "tasks": [{}]}'])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InvalidRequest, match=r"run\.json"):
        EvaluationRun.read(tmp_path / "run.json")


def test_votes_are_read_from_the_record_of_the_turn() -> None:
    votes = [{"agree": 5, "tried": 8, "other_agree": 2}, {"agree": 7, "tried": 7, "other_agree": 0}]
    turn = TaskTurn("?", "!", record={"votes": votes})

    assert [(vote.agree, vote.tried) for vote in turn.votes] == [(5, 8), (7, 7)]
    assert TaskResult("a", "chat", False, "", 1.0, turns=(turn,)).to_json()["votes"][1]["tried"] == 7

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.evaluation.answer_check import Observation, reason_wrong
from agent_kernel.evaluation.dabench import LABELS, QUESTIONS, TABLES, load_dabench

SAMPLE: dict[str, Any] = {
    "concepts": ["Summary Statistics"],
    "constraints": "Round to two decimals.",
    "format": "@mean_height[mean_height] where mean_height is a number.",
    "file_name": "trees.csv",
    "level": "easy",
}
ASKED = [
    {"id": 0, "question": "What is the mean height?", **SAMPLE},
    {"id": 4, "question": "Which species is the tallest?", **SAMPLE, "format": "@species[name]", "level": "medium"},
    {"id": 9, "question": "Do both correlate?", **SAMPLE, "format": "@r[value] @related[yes_no]", "level": "hard"},
]
LABELLED = [
    {"id": 9, "common_answers": [["r", "0.87"], ["related", "Yes"]]},
    {"id": 0, "common_answers": [["mean_height", "12.40"]]},
    {"id": 4, "common_answers": [["species", "oak"]]},
]


def write_dataset(folder: Path, asked: list[dict[str, Any]] = ASKED, labelled: list[dict[str, Any]] = LABELLED) -> Path:
    (folder / TABLES).mkdir()
    (folder / TABLES / "trees.csv").write_text("species,height\noak,20.1\nash,4.7\n")
    (folder / QUESTIONS).write_text("\n".join(map(json.dumps, asked)) + "\n")
    (folder / LABELS).write_text("\n".join(map(json.dumps, labelled)))
    return folder


def test_each_question_is_a_task_with_its_file_and_its_values(tmp_path: Path) -> None:
    tasks = load_dabench(write_dataset(tmp_path))

    assert [(task.name, task.kind) for task in tasks] == [("0", "easy"), ("4", "medium"), ("9", "hard")]
    assert [dict(task.values) for task in tasks] == [
        {"mean_height": "12.40"},
        {"species": "oak"},
        {"r": "0.87", "related": "Yes"},
    ]
    assert all(task.files == (tmp_path / TABLES / "trees.csv",) for task in tasks)
    for words in ("What is the mean height?", '"trees.csv"', "Round to two decimals.", "@mean_height[mean_height]"):
        assert words in tasks[0].prompts[0]


def test_answers_are_judged_by_value(tmp_path: Path) -> None:
    mean, species, both = load_dabench(write_dataset(tmp_path))

    assert not reason_wrong(mean, Observation("It is @mean_height[12.4]"))
    assert reason_wrong(mean, Observation("It is 12.4."))
    assert not reason_wrong(species, Observation("@species[Oak]"))
    assert not reason_wrong(both, Observation("@r[0.8714]\n@related[yes]"))
    assert reason_wrong(both, Observation("@r[0.8714]\n@related[no]"))


@pytest.mark.parametrize(
    ("asked", "labelled", "words"),
    [
        ([*ASKED, {**ASKED[0], "id": 12}], LABELLED, "The question 12 .* has no label"),
        ([{**ASKED[0], "file_name": "none.csv"}], LABELLED, "which does not exist"),
        ([{**ASKED[0], "file_name": "../da-dev-labels.jsonl"}], LABELLED, "which does not exist"),
        ([{"id": 0}], LABELLED, "Line 1 of .* must be an object with"),
        ([ASKED[0], ASKED[0]], LABELLED, "several tasks named '0'"),
        ([], LABELLED, "has no tasks"),
        (ASKED[:1], [{"id": 0, "common_answers": [["mean_height"]]}], "not a list of pairs"),
    ],
)
def test_a_set_that_is_not_complete_is_refused(
    tmp_path: Path, asked: list[dict[str, Any]], labelled: list[dict[str, Any]], words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        load_dabench(write_dataset(tmp_path, asked, labelled))


def test_a_missing_or_broken_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"da-dev-labels\.jsonl cannot be read"):
        load_dabench(tmp_path)
    write_dataset(tmp_path)
    (tmp_path / LABELS).write_text("{")
    with pytest.raises(InvalidRequest, match=r"da-dev-labels\.jsonl cannot be read"):
        load_dabench(tmp_path)

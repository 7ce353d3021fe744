"""Tests ``agent-kernel eval`` with a real server, kernels, drafts and the sandbox; only the model is scripted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.cli.eval import describe
from agent_kernel.evaluation.result_file import EvaluationRun
from agent_kernel.evaluation.task_result import Program, TaskResult, TaskTurn
from tests.cli.conftest import Command
from tests.test_layers import ROOT

TASKS = """
[[task]]
name = "sum"
kind = "computation"
prompts = ["What is SUM 20 plus 22?"]
number = 42

[[task]]
name = "variable"
kind = "pandas"
held_out = true
setup = "base = 20"
prompts = ["Look at VARIABLE {base}.", "Make result 42 of it AGAIN."]
holds = "result == 42"

[[task]]
name = "picture"
kind = "plot"
prompts = ["Draw PICTURE."]
draws = "figure['axes'][0]['lines'][0]['y'] == [1.0, 4.0, 9.0]"

[[task]]
name = "other sum"
kind = "computation"
prompts = ["What is TOTAL?"]
number = 7

[[task]]
name = "other variable"
kind = "pandas"
held_out = true
prompts = ["Make OTHER 3."]
holds = "other == 3"

[[task]]
name = "other picture"
kind = "plot"
prompts = ["Draw LINE."]
draws = "figure['axes'][0]['lines'][0]['y'] == [1.0, 4.0, 8.0]"
"""
DRAW = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [1, 4, 9])\nplt.show()"


def round_of(when: str, text: str = "", code: str = "") -> dict[str, Any]:
    calls = [{"name": "python", "arguments": {"code": code}}] if code else []
    return {"when": when, "text": text, "calls": calls}


SUM = [round_of("SUM", code="20 + 22"), round_of("SUM", "It is 42.")]
REST = [
    round_of("VARIABLE", "It is 20."),
    *(round_of("AGAIN", code="result = unknown"), round_of("AGAIN", code="result = 42"), round_of("AGAIN", "Done.")),
    *(round_of("PICTURE", code=DRAW), round_of("PICTURE", "There.")),
    round_of("TOTAL", "It is 8."),
    *(round_of("OTHER", code="other = 4"), round_of("OTHER", "Done.")),
    *(round_of("LINE", code=DRAW), round_of("LINE", "There.")),
]


async def start_eval(folder: Path, script: list[dict[str, Any]], *options: str) -> asyncio.subprocess.Process:
    (folder / "tasks.toml").write_text(TASKS)
    (folder / "script.json").write_text(json.dumps(script))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_KERNEL_")}
    env = {"AGENT_KERNEL_SCRIPT": str(folder / "script.json"), "AGENT_KERNEL_CACHE_DIR": str(folder / "cache")}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agent_kernel", "eval", str(folder / "tasks.toml"), "--engine", "scripted", *options),
        cwd=ROOT,
        env={**inherited, **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run_eval(folder: Path, script: list[dict[str, Any]], *options: str) -> tuple[str, str]:
    """Run the command and return what it wrote to stdout and to stderr."""
    process = await start_eval(folder, script, *options)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode(), err.decode()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["draft", "sandbox", "live"])
async def test_tasks_are_run_and_judged_where_the_code_runs(place: str, tmp_path: Path) -> None:
    out, err = await run_eval(tmp_path, [*SUM, *REST], "--in", place, "--json", "--at-once", "2")
    body = json.loads(out)
    tasks = {task["name"]: task for task in body["tasks"]}

    assert {name: task["wrong"] for name, task in tasks.items()} == {
        "sum": "",
        "variable": "",
        "picture": "",
        "other sum": "does not say 7",
        "other variable": "the variables are not as asked",
        "other picture": "no such picture",
    }, err
    assert {turn["where"] for turn in tasks["variable"]["turns"]} == {place}
    assert tasks["variable"]["marks"] == {"holds": "result == 42"}
    first, second = tasks["variable"]["turns"]
    assert (first["prompt"], second["prompt"]) == ("Look at VARIABLE {base}.", "Make result 42 of it AGAIN.")
    assert [(item["code"], item["status"]) for item in second["programs"]] == [
        ("result = unknown", "error"),
        ("result = 42", "success"),
    ]
    assert "NameError" in second["programs"][0]["output"]
    assert tasks["sum"]["turns"][0]["answer"] == "It is 42."
    assert tasks["sum"]["turns"][0]["programs"][0]["output"] == "42"
    assert tasks["sum"]["prompt_tokens"] > 0
    assert "/6] sum: right (" in err
    assert "/6] other sum: wrong: does not say 7 (" in err
    assert "/6] other variable: wrong (" in err  # held out: not why
    assert body["facts"]["engine"]["model"] == "scripted"
    assert body["options"] == {"model": "", "engine": "scripted", "protocol": "", "effort": "", "place": place}


@pytest.mark.slow
async def test_a_run_that_was_stopped_goes_on_where_it_was_and_tries_again_what_broke(tmp_path: Path) -> None:
    kill = [round_of("SUM", code="import os\nos._exit(1)"), round_of("SUM", "It is 42.")]
    slow = {"when": "TOTAL", "text": "word " * 500, "deltas": 500, "delay": 0.2}
    path = tmp_path / "run.json"
    only = ("--only", "sum,variable,other sum", "--in", "live")
    process = await start_eval(tmp_path, [*kill, *REST[:4], slow], *only, "--output", str(path))
    assert process.stderr is not None
    while b"[2/3]" not in (line := await process.stderr.readline()):
        assert line
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()

    assert process.returncode == 130
    assert b"Traceback" not in err
    results = EvaluationRun.read(path).results
    assert [(result.name, result.broken) for result in results] == [("sum", True), ("variable", False)]
    assert results[0].wrong == "broken: The kernel died while a cell was running."
    out, err2 = await run_eval(tmp_path, [*SUM, *REST[6:]], *only, "--resume", str(path))
    assert "2 of 3 tasks to run" in err2
    assert [(result.name, result.wrong) for result in EvaluationRun.read(path).results] == [
        ("variable", ""),
        ("sum", ""),
        ("other sum", "does not say 7"),
    ]
    assert [line.split()[:3] for line in out.splitlines()[1:3]] == [["pandas", "1", "1"], ["computation", "1", "2"]]


def test_a_run_that_has_everything_starts_no_server(command: Command, tmp_path: Path) -> None:
    (tmp_path / "tasks.toml").write_text(TASKS)
    done = [TaskResult("sum", "computation", False, "", 2.0, repetition) for repetition in (1, 2)]
    EvaluationRun("tasks", {}, results=done).write(tmp_path / "run.json")
    asked = ("eval", str(tmp_path / "tasks.toml"), "--resume", str(tmp_path / "run.json"), "--repeat", "2")
    ended = command(*asked, "--only", "sum")

    assert "0 of 2 tasks to run" in ended.err
    assert [line.split()[:3] for line in ended.out.splitlines()[1:]] == [["computation", "2", "2"], ["all", "2", "2"]]


def test_two_runs_are_compared_task_by_task(command: Command, tmp_path: Path) -> None:
    right = [TaskResult(name, "chat", name == "c", "", 2.0) for name in "abc"]
    EvaluationRun("notebook", {}, results=right).write(tmp_path / "a.json")
    wrong = [replace(one, wrong="no", seconds=3.0) for one in right]
    EvaluationRun("notebook", {}, results=wrong).write(tmp_path / "b.json")
    ended = command("eval", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"))

    assert "tuned: 2 and 0 of 2 right" in ended.out
    assert "held out: 1 and 0 of 1 right" in ended.out
    assert "all: 3 and 0 of 3 right; only B 0, only A 3, sign test p = 0.25" in ended.out
    assert "only A right: a, b, c" in ended.out
    assert "median seconds 2 and 3" in ended.out


def test_help_names_the_task_sets(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command("eval", "notebook", "--help")
    shown = capsys.readouterr().out
    assert all(
        name in shown for name in ("files", "independent", "notebook", "tools", "unseen", "--resume", "--at-once")
    )
    with pytest.raises(SystemExit):
        command("eval", "--help")
    assert "compare" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("nonesuch",),
            "There is no task set 'nonesuch'. Name one of files, independent, notebook, tools, unseen, or give a path.",
        ),
        (("notebook", "--only", "nonesuch"), "has no task named 'nonesuch'"),
        (("{folder}",), "has no da-dev-questions.jsonl"),
        (("notebook", "--resume", "{folder}/none.json"), "cannot be read"),
        (("notebook", "--resume", "{folder}/run.json"), "measured with other options (model other)"),
        (
            ("compare", "{folder}/run.json", "{folder}/none.json"),
            "none.json cannot be read: No such file or directory.",
        ),
        (("compare", "{folder}/run.json", "{folder}/run.json"), "have no task in common"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: tuple[str, ...], words: str, command: Command, tmp_path: Path
) -> None:
    EvaluationRun("notebook", {"model": "other"}).write(tmp_path / "run.json")
    ended = command("eval", *(argument.format(folder=tmp_path) for argument in arguments))

    assert ended.status == 1
    assert words in ended.err


def test_a_comparison_is_printed_as_json_too(command: Command, tmp_path: Path) -> None:
    result = TaskResult("a", "chat", False, "", 2.0)
    EvaluationRun("notebook", {}, results=[result]).write(tmp_path / "a.json")
    EvaluationRun("notebook", {}, results=[replace(result, wrong="no")]).write(tmp_path / "b.json")
    body = command("eval", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--json").json

    assert (body["right"], body["worse"], body["p_value"]) == ([1, 0], ["a"], 1.0)
    assert body["halves"]["tuned"]["tasks"] == 1
    assert body["halves"]["held out"]["tasks"] == 0


def test_the_line_of_a_task_does_not_show_what_is_held_out() -> None:
    turn = TaskTurn("?", "!", (Program("1", "success", "1"), Program("x", "error", "NameError")))
    result = TaskResult("a", "chat", False, "does not say 9173", 2.04, turns=(turn,))

    assert describe(result) == "a: wrong: does not say 9173 (2.0 s, 0+0 tokens, 1 of 2 programs failed)"
    assert describe(replace(result, held_out=True)).startswith("a: wrong (2.0 s")
    assert describe(replace(result, wrong="", repetition=2)).startswith("a (2): right (2.0 s")


@pytest.mark.slow
async def test_an_engine_that_does_not_answer_ends_the_run_and_says_why(tmp_path: Path) -> None:
    process = await start_eval(tmp_path, [], "--model", "nonesuch")
    out, err = await process.communicate()

    assert (process.returncode, out) == (1, b"")
    assert b"the model does not answer: " in err
    assert b"There is no engine or model 'nonesuch' here" in err
    assert b"Traceback" not in err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="drafts need Linux")
async def test_what_drafts_voted_is_in_the_table_and_in_the_result(tmp_path: Path) -> None:
    programs = [round_of("SUM", code=code) for code in ["20 + 21", *["20 + 22"] * 5, "1 / 0", "20 + 21"]]
    out, err = await run_eval(
        tmp_path, [*programs, round_of("SUM", "It is 42.")], "--only", "sum", "--effort", "thorough", "--json"
    )
    (task,) = json.loads(out)["tasks"]

    assert "[1/1] sum: right (" in err
    assert "5 of 8 agreed)" in err
    assert [(vote["agree"], vote["tried"]) for vote in task["votes"]] == [(5, 8)]
    assert [program["code"] for program in task["turns"][0]["programs"]] == ["20 + 22"]


@pytest.mark.slow
async def test_a_signal_that_ends_the_command_ends_its_server_too(tmp_path: Path) -> None:
    process = await start_eval(
        tmp_path, [round_of("SUM", "word " * 500) | {"deltas": 500, "delay": 0.2}], "--only", "sum"
    )
    while not any("ipykernel" in line for line in processes_of(tmp_path)):
        assert process.returncode is None
        await asyncio.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    _, err = await process.communicate()

    assert process.returncode == 130, err.decode()
    assert b"Traceback" not in err
    assert processes_of(tmp_path) == []


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of all processes that use the script of this folder."""
    mark, found = f"AGENT_KERNEL_SCRIPT={folder}/".encode(), list[str]()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found

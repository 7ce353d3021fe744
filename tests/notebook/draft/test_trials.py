"""Tests programs that run as trials in drafts: how long they may delay a turn, and that nothing of them remains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.notebook.draft import jail
from agent_kernel.notebook.draft.draft_process import END_S, GRACE_S

pytestmark = pytest.mark.skipif(bool(jail.missing()), reason=jail.missing())

DRIVER = Path(__file__).with_name("trials.py")
ROOT = Path(__file__).parents[3]
SETUP = "import time, os, subprocess\nvalues = list(range(1000))"
STUBBORN = "while True:\n    try:\n        {}\n    except KeyboardInterrupt:\n        pass"
HOSTILE = {
    "sleeps": "time.sleep(600)",
    "sleeps through interrupts": STUBBORN.format("time.sleep(600)"),
    "loops": "while True: pass",
    "loops through interrupts": STUBBORN.format("pass"),
    "takes memory": "held = []\nwhile True: held.append(bytearray(b'x' * (16 << 20)))",
    "starts processes": "subprocess.Popen(['sleep', '600']).wait()",
    "floods": "while True: print('x' * 10_000)",
}


def tried(turns: list[list[str]], *, extra: str = "", timeout_s: float = 100, **more: Any) -> dict[str, Any]:
    """Return what ``trials.py`` prints about these turns, in a kernel that has run SETUP and ``extra``."""
    body = {"setup": f"{SETUP}\n{extra}", "turns": turns, "live": ["sum(values)", "globals().get('made')"], **more}
    done = subprocess.run(
        [sys.executable, str(DRIVER)],
        input=json.dumps(body),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["live"] == ["499500", "None"]
    assert found["ended"]["processes"] <= 0
    return found


def test_hostile_programs_hold_a_turn_no_longer_than_one_budget() -> None:
    """Eight programs at a limit of 10 s each would take 80 s. This test has shorter limits, and waits for
    programs that do not stop."""
    budget_s = 2.0
    found = tried([[*HOSTILE.values(), "print(7)"]], trial_s=1.0, trials_s=budget_s, memory_mb=512)
    [turn] = found["turns"]
    assert turn["seconds"] < 3 * (budget_s + GRACE_S + END_S), "a slow machine may take three times as long"
    assert len(turn["outcomes"]) <= 2, "each of the first two takes at least half of the budget"
    assert {outcome["status"] for outcome in turn["outcomes"]} <= {"error", "success"}
    assert turn["outcomes"][0]["status"] == "error"
    assert found["after"]["processes"] == 2, "the draft and its keeper: everything that was started has ended"


def test_an_honest_program_has_its_turn_after_one_that_does_not_stop() -> None:
    [turn] = tried([[HOSTILE["loops through interrupts"], "print(7)"]], trial_s=0.5)["turns"]
    assert [(one["status"], one["text"]) for one in turn["outcomes"]][1] == ("success", "7")


def test_turns_leave_nothing_behind() -> None:
    """Each turn makes several processes, which takes time."""
    programs = ["made = [values]", "print(sum(values))", "1 / 0", "open('x', 'w')", "values.append(0)"]
    found = tried([[programs[turn % 5], programs[(turn + 1) % 5]] for turn in range(10)], names=["made"])
    assert found["after"] == found["before"]
    assert found["after"]["directories"] == 1
    assert found["ended"]["directories"] == -1


LIAR = "import agent_kernel.notebook.draft.child_process as child\nchild.describe_data = lambda **options: {}"


def test_a_draft_describes_its_variables_and_keeps_them_whatever_its_code_does_to_the_description() -> None:
    answers = ["['Variables', 'made: 7']", "['Files', 'x.csv']", "[7]", "1 / 0", "os._exit(3)"]
    codes = ["made = [1, 2]\nvalues.append(5)", *map(LIAR.format, answers)]
    found = tried([["print(made)"]], codes=codes, prompt="What is in made and values?")
    true, lied, *nothing = found["described"]
    assert true == "Variables\nmade: list of 2: 1, 2\nvalues: list of 1001: 0, 1, 2, 3, 4, ..."
    assert lied == "Variables\nmade: 7", "it is text about the variables, and nothing else"
    assert nothing == [""] * 4
    assert [outcome["text"].strip() for outcome in found["turns"][0]["outcomes"]] == ["[1, 2]"]


def test_a_draft_that_does_not_end_its_description_goes_on_without_one() -> None:
    codes = ["made = [1, 2]", LIAR.format("time.sleep(600)")]
    found = tried([["print(made)"]], codes=codes, prompt="What is in made?", describe_s=0.2)
    assert found["described"][-1] == ""
    assert [outcome["text"].strip() for outcome in found["turns"][0]["outcomes"]] == ["[1, 2]"]


def test_a_draft_that_has_run_nothing_describes_nothing() -> None:
    assert tried([["made = 1"]], codes=["1 / 0"], prompt="What is in values?")["described"] == [""]

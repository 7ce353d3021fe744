"""Attacks on the jail, in every degree of isolation that this system allows."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.sandbox.jail import Plan
from tests.sandbox.attacks import ATTACKS, REACHABLE, UNSEEN, attack, possible, scene, unjailed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
PLANS = asyncio.run(possible()) if sys.platform == "linux" else []
NOBODY = 65534


@pytest.fixture(scope="module", params=PLANS, ids=lambda plan: f"{plan.namespaces}{'-drop' if plan.drop else ''}")
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    plan: Plan = request.param
    with scene(tmp_path_factory.mktemp("scene")) as here:
        return asyncio.run(attack(here, plan)) | {"host untouched": str(here.untouched())}


@pytest.mark.parametrize("name", ATTACKS)
def test_code_that_attacks_is_blocked(said: dict[str, str], name: str) -> None:
    assert said[name] == "'blocked'"


@pytest.mark.parametrize("name", UNSEEN)
def test_code_that_changes_what_is_outside_is_refused_or_without_effect(said: dict[str, str], name: str) -> None:
    assert said[name] == "nothing" or "Error" in said[name]


def test_the_host_is_as_it_was_after_all_attacks(said: dict[str, str]) -> None:
    assert said["host untouched"] == "True"


@pytest.mark.parametrize("name", REACHABLE)
def test_the_same_attack_succeeds_without_a_jail(tmp_path: Path, name: str) -> None:
    with scene(tmp_path) as here:
        assert unjailed(here, name).startswith("ESCAPED")


def test_some_jail_is_possible_where_these_tests_run() -> None:
    assert PLANS


def _python_for_anybody() -> str | None:
    """An interpreter of a supported version that an ordinary user may run."""
    check = ["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            if (
                subprocess.run([python, *check], user=NOBODY, group=NOBODY, extra_groups=[], check=False).returncode
                == 0
            ):
                return python
        except OSError:
            continue
    return None


def test_attacks_are_blocked_for_an_ordinary_user_as_well() -> None:
    root_here = os.geteuid() == 0
    python = _python_for_anybody() if root_here else sys.executable
    if python is None:
        pytest.skip("no interpreter that another user may run")
    root = Path(__file__).parents[2]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(root), "HOME": "/nonexistent"}
    command = [python, "-B", str(root / "tests" / "sandbox" / "attacks.py")]
    user: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if root_here else {}
    run = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False, **user)
    assert run.returncode == 0, run.stderr
    by_plan = json.loads(run.stdout)
    assert by_plan
    for plan, said in by_plan.items():
        escaped = {name: text for name, text in said.items() if name in ATTACKS and text != "'blocked'"}
        assert (plan, escaped) == (plan, {})
        assert said["host untouched"] == "True"

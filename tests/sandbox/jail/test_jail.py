"""Tests attacks on the jail, with every isolation plan that this system allows, as root and as an ordinary user."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.jail.jail import IsolationPlan
from tests.sandbox.attacks import ATTACKS, KNOWN, REACHABLE, UNSEEN, attack, escaped, possible, scene, unjailed
from tests.sandbox.attacks_on_network import PROXY

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
NOBODY = 65534


def _python_for_anybody() -> str | None:
    """Return an interpreter of a supported version that an ordinary user may run, or None."""
    check = ["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            as_nobody: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            if subprocess.run([python, *check], check=False, **as_nobody).returncode == 0:
                return python
        except OSError:
            continue
    return None


ANYBODYS = _python_for_anybody() if sys.platform == "linux" and os.geteuid() == 0 else None
PLANS = asyncio.run(possible(Path(ANYBODYS) if ANYBODYS else None)) if sys.platform == "linux" else []


def _name(plan: IsolationPlan) -> str:
    who = ("root, dropped" if plan.drop else "root") if os.geteuid() == 0 else "user"
    return f"{who}, {plan.namespaces if plan.namespaces != 'root' else 'own'} namespaces"


def test_attacks_are_many_and_distinct() -> None:
    assert len(ATTACKS) + len(UNSEEN) >= 80
    assert len({*ATTACKS.values(), *UNSEEN.values()}) == len(ATTACKS) + len(UNSEEN)


@pytest.mark.parametrize("plan", PLANS, ids=_name)
def test_every_attack_is_blocked(plan: IsolationPlan) -> None:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # a session that is another user has to get to its work directory
        with scene(Path(folder)) as here:
            said = asyncio.run(attack(here, plan, Path(ANYBODYS) if ANYBODYS and plan.drop else None))
            assert escaped(said) == {}
            assert here.untouched()
    assert {said[name] == "'blocked'" for name in KNOWN} == {plan.namespaces != "none"}
    print(f"{_name(plan)}: {len(said) - len(KNOWN)} attacks, none got out")


def test_the_same_attacks_succeed_without_a_jail(tmp_path: Path) -> None:
    with scene(tmp_path) as here:
        said = unjailed(here)
        assert {name for name in REACHABLE if not said.get(name, "").strip("'\"").startswith("ESCAPED")} == set(), said


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan.namespaces != "none"], ids=_name)
def test_no_attack_gets_past_or_through_the_proxy(plan: IsolationPlan) -> None:
    policy = SandboxPolicy(warm=0, network="full")
    with TemporaryDirectory() as folder, scene(Path(folder)) as here:
        said = asyncio.run(attack(here, plan, policy=policy, attacks=PROXY))
        assert {name: text for name, text in said.items() if text != "'blocked'"} == {}
        assert said.keys() == PROXY.keys()
        assert here.untouched()
    print(f"{_name(plan)}, network full: {len(said)} attacks, none got out")


def test_some_jail_is_possible_where_these_tests_run() -> None:
    assert PLANS


def test_every_attack_is_blocked_for_an_ordinary_user_as_well() -> None:
    root_here = os.geteuid() == 0
    python = ANYBODYS if root_here else sys.executable
    if python is None:
        pytest.skip("no interpreter that another user may run")
    root = Path(__file__).parents[3]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(root), "HOME": "/nonexistent"}
    command = [python, "-B", str(root / "tests" / "sandbox" / "attacks.py")]
    user: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if root_here else {}
    run = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False, **user)
    assert run.returncode == 0, run.stderr
    by_plan = json.loads(run.stdout)
    assert by_plan
    for plan, said in by_plan.items():
        assert (plan, escaped(said)) == (plan, {})
        assert said["host untouched"] == "True"
        print(f"user, {plan} namespaces: {len(said) - 1 - len(KNOWN)} attacks, none got out")


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can give up what a pod does not have"
)
@pytest.mark.parametrize("user", [None, NOBODY], ids=["root", "ordinary user"])
def test_every_attack_is_blocked_in_a_container_without_rights(user: int | None) -> None:
    """As in the pod of a hub: no CAP_SYS_ADMIN, the default seccomp profile, and so no namespaces."""
    if ANYBODYS is None:
        pytest.skip("no interpreter that another user may run")
    root = Path(__file__).parents[3]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(root), "HOME": "/nonexistent"}
    container = [
        sys.executable,
        str(root / "tests" / "sandbox" / "container.py"),
        *(["--user", str(user)] if user else []),
    ]
    command = [*container, ANYBODYS, "-B", str(root / "tests" / "sandbox" / "attacks.py")]
    run = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    by_plan = json.loads(run.stdout)
    assert {plan.partition(",")[0] for plan in by_plan} == {"none"}
    for plan, said in by_plan.items():
        assert (plan, escaped(said)) == (plan, {})
        assert said["host untouched"] == "True"
        print(f"container, {'user' if user else 'root'}, {plan}: {len(said) - 1 - len(KNOWN)} attacks, none got out")

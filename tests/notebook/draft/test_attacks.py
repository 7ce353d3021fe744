"""Tests the attacks on the sandbox's jail in drafts: as root and as an ordinary user, with namespaces and in a
container that allows none.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.notebook.draft import jail
from tests.sandbox.attacks import KNOWN, escaped

pytestmark = pytest.mark.skipif(bool(jail.missing()), reason=jail.missing())

ROOT = Path(__file__).parents[3]
ORDINARY = 61001
PACKAGES = sysconfig.get_path("purelib")
CONTAINER = [sys.executable, str(ROOT / "tests" / "sandbox" / "container.py")]


def python_for_anybody() -> str:
    """Return an interpreter of this version that an ordinary user may run, with the packages of this one; empty if
    there is none.
    """
    check = f"import sys, IPython, numpy; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    other: dict[str, Any] = {"user": ORDINARY, "group": ORDINARY, "extra_groups": []} if os.getuid() == 0 else {}
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        with contextlib.suppress(OSError):
            done = subprocess.run(
                [python, "-c", check], env={"PYTHONPATH": PACKAGES}, cwd="/", capture_output=True, check=False, **other
            )
            if done.returncode == 0:
                return python
    return ""


def settings() -> dict[str, tuple[list[str], str, int | None]]:
    """Return (command prefix, interpreter, user) of each setting that is possible on this machine."""
    if os.getuid() != 0:
        return {"ordinary user": ([], sys.executable, None)}
    found: dict[str, tuple[list[str], str, int | None]] = {"root": ([], sys.executable, None)}
    found["root in a container"] = (CONTAINER, sys.executable, None)
    if python := python_for_anybody():
        found["ordinary user"] = ([], python, ORDINARY)
        found["ordinary user in a container"] = ([*CONTAINER, "--user", str(ORDINARY)], python, None)
    return found


SETTINGS = settings() if sys.platform == "linux" else {}


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_attack_is_blocked_in_a_draft(setting: str) -> None:
    before, python, user = SETTINGS[setting]
    command = [*before, python, "-B", str(ROOT / "tests" / "notebook" / "draft" / "attacks.py")]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}{os.pathsep}{PACKAGES}", "HOME": "/nonexistent"}
    other: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user else {}
    run = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=False, **other)
    assert run.returncode == 0, run.stderr
    said: dict[str, Any] = json.loads(run.stdout)
    assert (said["unsafe"], said["left"]) == ("", [])
    assert escaped(said) == {}
    assert escaped(said["after a call that failed"]) == {}, "in the fork that took over"
    assert said["host untouched"] == "True"
    works = "".join(said["works"].values())
    assert all(word in works for word in ("1,2", "3", "42", "hello")), works
    print(f"draft, {setting}: {len(said) - 5 - len(KNOWN)} attacks, none got out")

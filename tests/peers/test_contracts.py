"""Runs the contracts against the real packages, each in its own environment because their pinned versions conflict."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.mark.parametrize("contract", sorted(HERE.glob("agents_sdk/contract_*.py")), ids=lambda path: path.stem)
def test_openai_agents_holds_to_it(agents_python: str, contract: Path) -> None:
    held(agents_python, contract)


@pytest.mark.parametrize("contract", sorted(HERE.glob("selectools/contract_*.py")), ids=lambda path: path.stem)
def test_selectools_holds_to_it(selectools_python: str, contract: Path) -> None:
    held(selectools_python, contract)


def held(python: str, contract: Path) -> None:
    """Run the tests of a contract in the other environment. If one fails, the AssertionError contains
    pytest's output.
    """
    there = ["--rootdir", str(contract.parent), "--confcutdir", str(contract.parent), "-c", str(HERE / "peer.ini")]
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", *there, str(contract)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

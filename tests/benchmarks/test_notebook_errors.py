"""Tests the entries of notebook_errors.toml: each cell raises its error, and its check tells a fix from a cell that
fixes nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import notebook_errors
from tests.benchmarks.notebook_errors import NotebookError

CASES = notebook_errors.notebook_errors()
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    """Return the results of all cells by the name of the error. They run in an IPython shell in a separate process."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, notebook_errors.__file__], env=env, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {run["name"]: run for run in json.loads(done.stdout.splitlines()[-1])}


def test_there_are_twenty_five_errors_and_twelve_of_them_are_held_out() -> None:
    assert len({case.name for case in CASES}) == len(CASES) == 25
    assert sum(case.held_out for case in CASES) == 12


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_cell_fails_with_its_error_and_does_not_do_what_it_meant(case: NotebookError, runs: dict[str, Any]) -> None:
    assert runs[case.name]["failing"]["raised"] == case.error
    assert not runs[case.name]["failing"]["right"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_fixed_cell_does_what_the_cell_meant(case: NotebookError, runs: dict[str, Any]) -> None:
    assert runs[case.name]["fixed"]["raised"] == ""
    assert runs[case.name]["fixed"]["right"]

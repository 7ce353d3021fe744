"""Tests how a test that failed runs again (``make test RERUNS=1``, as in CI)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FAILING_ONCE = Path(__file__).with_name("failing_once.py")


def test_a_test_that_runs_again_gets_the_fixtures_of_its_module_anew() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--reruns", "1", str(FAILING_ONCE)]
    done = subprocess.run(command, cwd=FAILING_ONCE.parents[1], capture_output=True, text=True, check=False)

    assert "1 passed, 1 rerun" in done.stdout, done.stdout

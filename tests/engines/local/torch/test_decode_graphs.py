"""Tests that padded and replayed steps give the answers that the model gives, on a CPU with random weights. That a CUDA
device records them is shown by ``make gpu``.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch

SCRIPT = Path(__file__).parent / "decode_graph_facts.py"


@pytest.fixture(scope="module")
def found(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ``decode_graph_facts.py`` prints. It runs in another process because this interpreter has no torch."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4]), "TQDM_DISABLE": "1"}
    done = subprocess.run(
        [torch_python, str(SCRIPT), str(tmp_path_factory.mktemp("graphs"))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def test_replayed_steps_give_the_same_answers_and_reuse_the_same_prefixes(found: dict[str, Any]) -> None:
    assert found["GraphsOnCpu"]["answers"] == found["without"]
    assert found["GraphsOnCpu"]["details"] == "on"


def test_a_few_graphs_serve_all_steps(found: dict[str, Any]) -> None:
    assert 1 <= found["GraphsOnCpu"]["graphs"] <= 6


def test_a_model_whose_steps_cannot_be_recorded_runs_without_graphs_and_says_so(found: dict[str, Any]) -> None:
    assert found["NoGraphs"]["answers"] == found["without"]
    assert found["NoGraphs"]["details"] == "off: operation not permitted when stream is capturing"


def test_a_library_that_changed_costs_the_graphs_only(found: dict[str, Any]) -> None:
    assert found["ChangedLibrary"]["answers"] == found["without"]
    assert found["ChangedLibrary"]["details"].endswith("has changed: no model_runner")

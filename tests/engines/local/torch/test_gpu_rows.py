"""Tests that the command which measures a GPU runs on a machine without one, with a small model of random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.gpu_rows import main


@pytest.mark.timeout(600)
def test_a_trial_on_the_cpu_fills_every_row_of_a_precision(torch_python: str, tmp_path: Path) -> None:
    output = tmp_path / "gpu.json"
    arguments = ["--dry-device", "cpu", "--worker", torch_python, "--precisions", "fp32", "--tokens", "32"]
    assert main([*arguments, "--output", str(output)]) == 0
    rows = {row["name"]: row for row in json.loads(output.read_text())["rows"]}
    assert not [row for row in rows.values() if row["value"] is None]
    assert {"fp32: 1 session", "fp32: 8 sessions", "fp32: 64 sessions", "fp32: 64 sessions, sampled"} <= rows.keys()
    assert {"fp32: 8 sessions, under a grammar", "fp32: 64 sessions, transformers alone"} <= rows.keys()
    assert rows["fp32: prompt tokens reused in the next turn"]["value"] > 90
    assert "vision, random weights: answer to a picture" in rows
    assert "| fp32: 8 sessions |" in output.with_suffix(".md").read_text()


def test_a_gpu_needs_the_directory_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "name the directory of a model" in capsys.readouterr().err

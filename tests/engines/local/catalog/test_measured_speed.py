"""Tests the file that stores the decoding speed of each model."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_kernel.core.messages import Usage
from agent_kernel.engines.local.catalog.measured_speed import SPEEDS_FILE, read_speeds, record_speed


def usage(tokens: int = 100, seconds: float = 5.0, *, estimated: bool = False) -> Usage:
    return Usage(completion_tokens=tokens, decode_s=seconds, estimated=estimated)


def test_an_answer_on_a_busy_machine_lowers_the_speed_by_a_quarter_of_the_difference(tmp_path: Path) -> None:
    record_speed(tmp_path, "one", usage(seconds=5.0))
    record_speed(tmp_path, "one", usage(seconds=50.0))
    assert read_speeds(tmp_path) == {"one": 15.5}
    record_speed(tmp_path, "one", usage(seconds=5.0))
    assert read_speeds(tmp_path) == {"one": 20.0}


def test_a_speed_is_stored_for_each_model_and_a_faster_one_counts(tmp_path: Path) -> None:
    assert read_speeds(tmp_path) == {}
    record_speed(tmp_path, "one", usage(seconds=5.0))
    record_speed(tmp_path, "other", usage(seconds=10.0))
    assert read_speeds(tmp_path) == {"one": 20.0, "other": 10.0}
    record_speed(tmp_path, "one", usage(seconds=2.0))
    assert read_speeds(tmp_path)["one"] == 50.0


@pytest.mark.parametrize("answer", [usage(tokens=31), usage(seconds=0.0), usage(estimated=True)])
def test_a_short_answer_and_a_guessed_count_measure_nothing(tmp_path: Path, answer: Usage) -> None:
    record_speed(tmp_path, "one", answer)
    assert not list(tmp_path.iterdir())


def test_a_small_change_is_not_written_again(tmp_path: Path) -> None:
    record_speed(tmp_path, "one", usage(seconds=5.0))
    record_speed(tmp_path, "one", usage(seconds=5.2))
    assert read_speeds(tmp_path) == {"one": 20.0}


@pytest.mark.parametrize("text", ["{", "[1]", '{"one": "fast"}', '{"one": null}'])
def test_a_damaged_file_counts_as_no_measurement_and_is_replaced(tmp_path: Path, text: str) -> None:
    record_speed(tmp_path, "one", usage())
    (tmp_path / "models" / SPEEDS_FILE).write_text(text)
    assert read_speeds(tmp_path) == {}
    record_speed(tmp_path, "one", usage())
    assert read_speeds(tmp_path) == {"one": 20.0}


def test_a_cache_that_cannot_be_written_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file where the folder should be")
    record_speed(tmp_path, "one", usage())
    assert read_speeds(tmp_path) == {}

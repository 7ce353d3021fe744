"""Tests which model is recommended for which machine. Machines are values: memory, cores, and measured speeds."""

from __future__ import annotations

import pytest

from agent_kernel.engines.local.catalog.machine import Machine
from agent_kernel.engines.local.catalog.recommendation import assess, recommend
from agent_kernel.engines.local.system_memory import Memory

GIB = 2**30


def machine(total: int, available: int | None = None) -> Machine:
    return Machine(Memory(total * GIB, (available or total) * GIB), 4)


def recommended_model(total: int, **speeds: float) -> str:
    named = {name.replace("_", "-").replace("-5b", ".5b"): speed for name, speed in speeds.items()}
    return recommend(machine(total), assess(machine(total), named))


@pytest.mark.parametrize(("total", "name"), [(2, "coder-0.5b"), (8, "coder-0.5b"), (12, "coder-1.5b")])
def test_the_memory_decides_between_the_default_models(total: int, name: str) -> None:
    assert recommended_model(total) == name


def test_a_large_model_is_recommended_only_after_a_measurement_says_that_it_is_fast_enough() -> None:
    assert recommended_model(64) == "coder-1.5b"
    assert recommended_model(64, coder_1_5b=15.0) == "coder-1.5b"  # 3.5 tokens per second with coder-7b
    assert recommended_model(64, coder_1_5b=40.0) == "coder-7b"
    assert recommended_model(16, coder_1_5b=40.0) == "coder-1.5b"


def test_where_the_memory_is_unknown_nothing_is_said_about_it_and_the_smallest_default_is_recommended() -> None:
    unknown = Machine(None, 4)
    assessed = assess(unknown, {"coder-1.5b": 100.0})
    assert {found.fits for found in assessed.values()} == {None}
    assert "does not report" in assessed["coder-7b"].reason
    assert recommend(unknown, assessed) == "coder-0.5b"


def test_a_model_that_does_not_fit_says_what_it_needs_what_there_is_and_what_stays_free() -> None:
    found = assess(machine(16), {})["qwen3-14b"]
    assert found.fits is False
    needed = "needs 33.2 GB of memory; this machine has 17.2 GB"
    assert found.reason == f"{needed}, of which 1.7 GB are reserved for your programs"


def test_a_model_that_fits_only_when_other_programs_end_says_so() -> None:
    found = assess(machine(16, available=6), {})["qwen3-4b"]
    assert found.fits is True
    needed = "needs 9.2 GB of memory; 6.4 GB are free now, of which 1.7 GB are reserved for your programs"
    assert found.reason == f"{needed}, so other programs have to end first"


def test_a_speed_is_the_measured_one_else_scaled_by_bytes_and_named_an_estimate_else_unknown() -> None:
    assessed = assess(machine(32), {"coder-1.5b": 20.0})
    assert (assessed["coder-1.5b"].speed.tokens_per_s, assessed["coder-1.5b"].speed.basis) == (20.0, "measured")
    scaled = assessed["coder-7b"].speed
    assert scaled.tokens_per_s == pytest.approx(20.0 * 1_894_532_160 / 8_098_525_184)
    assert (scaled.basis, "an estimate from coder-1.5b" in scaled.note) == ("scaled", True)
    assert assess(machine(32), {"tiny": 50.0})["coder-7b"].speed.basis == "unknown", "too small to scale from"
    nothing = assess(machine(32), {})["coder-7b"]
    assert (nothing.speed.basis, nothing.to_json()["tokens_per_s"]) == ("unknown", None)

"""Tests what is read about a machine: the cores of a container and the GPUs that the driver lists."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_kernel.engines.local.catalog.machine import Gpu, Machine, parse_gpus, usable_cores
from agent_kernel.engines.local.system_memory import Memory


@pytest.mark.parametrize("text", ["max 100000\n", "nonsense", ""])
def test_without_a_limit_the_cores_are_those_of_the_process(tmp_path: Path, text: str) -> None:
    limit = tmp_path / "cpu.max"
    limit.write_text(text)
    assert usable_cores(limit) == usable_cores(tmp_path / "none") <= (os.cpu_count() or 1)


def test_a_container_that_gets_less_than_a_core_counts_as_one_core(tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    limit.write_text("50000 100000\n")
    assert usable_cores(limit) == 1


def test_the_gpus_are_read_from_the_drivers_list_and_other_lines_are_ignored() -> None:
    text = "NVIDIA A100, 80GB, 81920\nNVIDIA T4, [N/A]\nNo devices were found\n"
    assert parse_gpus(text) == (Gpu("NVIDIA A100, 80GB", 81_920 * 2**20),)


def test_a_machine_is_described_in_bytes_and_an_unknown_memory_is_null() -> None:
    gpus = (Gpu("NVIDIA T4", 16 * 2**30),)
    assert Machine(Memory(8, 4), 2, gpus).to_json() == {
        "memory_bytes": 8,
        "available_bytes": 4,
        "cores": 2,
        "gpus": [{"name": "NVIDIA T4", "memory_bytes": 16 * 2**30}],
    }
    assert Machine(None, 2).to_json()["memory_bytes"] is None

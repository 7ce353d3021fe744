"""Tests ``agent-kernel model recommend``: the rows and the text, for machines that are given as values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from agent_kernel.cli.models import recommendation, recommendation_lines
from agent_kernel.core.messages import Usage
from agent_kernel.engines.local.catalog.machine import Gpu, Machine
from agent_kernel.engines.local.catalog.measured_speed import record_speed
from agent_kernel.engines.local.system_memory import Memory
from tests.cli.conftest import Command

GIB = 2**30
SCHEMA = {
    "type": "object",
    "required": ["machine", "recommended", "default", "models", "gpu"],
    "additionalProperties": False,
    "properties": {
        "machine": {
            "type": "object",
            "required": ["memory_bytes", "available_bytes", "cores", "gpus"],
            "additionalProperties": False,
            "properties": {
                "memory_bytes": {"type": ["integer", "null"]},
                "available_bytes": {"type": ["integer", "null"]},
                "cores": {"type": "integer", "minimum": 1},
                "gpus": {"type": "array", "items": {"required": ["name", "memory_bytes"]}},
            },
        },
        "recommended": {"type": ["string", "null"]},
        "default": {"type": ["string", "null"]},
        "gpu": {"type": ["object", "null"], "required": ["gpu", "name", "memory_bytes", "settings"]},
        "models": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string"},
                    "title": {"type": "string"},
                    "licence": {"type": "string"},
                    "state": {"enum": ["ready", "partial", "missing", "broken"]},
                    "download_bytes": {"type": "integer"},
                    "disk_bytes": {"type": "integer"},
                    "memory_bytes": {"type": "integer"},
                    "fits": {"type": ["boolean", "null"]},
                    "fit_reason": {"type": "string"},
                    "tokens_per_s": {"type": ["number", "null"]},
                    "speed_basis": {"enum": ["measured", "scaled", "unknown"]},
                    "speed_note": {"type": "string"},
                    "recommended": {"type": "boolean"},
                    "command": {"type": "string", "pattern": "^agent-kernel model pull "},
                },
                "minProperties": 14,
            },
        },
    },
}


def lines(machine: Machine, cache: Path, **speeds: float) -> list[str]:
    return list(recommendation_lines(recommendation(machine, speeds, cache)))


def test_the_json_describes_the_machine_and_every_model_of_the_catalog(tmp_path: Path) -> None:
    env = {**os.environ, "AGENT_KERNEL_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "agent_kernel.cli", "model", "recommend", "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    jsonschema.validate(result, SCHEMA)
    assert [row["name"] for row in result["models"] if row["recommended"]] == [result["recommended"]]


def test_the_description_of_a_model_has_its_speed_with_a_unit(command: Command) -> None:
    speed = next(line for line in command("model", "info", "tiny").out.splitlines() if line.startswith("speed"))
    assert speed.split(maxsplit=1)[1] == "unknown until a model has answered on this machine"
    record_speed(command.data.parent / "cache", "tiny", Usage(10, 64, decode_s=1.0))
    speed = next(line for line in command("model", "info", "tiny").out.splitlines() if line.startswith("speed"))
    assert speed.split(maxsplit=1)[1] == "64 tokens per second, measured here"


@pytest.mark.parametrize("machine", [Machine(Memory(8 * GIB, 4 * GIB), 2), Machine(None, 1)])
def test_the_json_has_the_same_form_for_every_machine(tmp_path: Path, machine: Machine) -> None:
    jsonschema.validate(recommendation(machine, {"coder-0.5b": 30.0}, tmp_path), SCHEMA)


def test_the_text_marks_the_best_model_and_gives_the_command_that_gets_it(tmp_path: Path) -> None:
    said = lines(Machine(Memory(8 * GIB, 6 * GIB), 2), tmp_path)
    assert said[0] == "This machine has 8.6 GB of memory (6.4 GB free), 2 CPU cores and no NVIDIA GPU."
    assert next(line for line in said if line.startswith("* coder")).split()[1:4] == ["coder-0.5b", "missing", "yes"]
    assert "The speed is unknown until a model has answered on this machine." in said
    assert said[-1] == ("* coder-0.5b suits this machine best. Get it with: agent-kernel model pull coder-0.5b")


def test_an_estimated_speed_is_called_one_and_names_its_basis(tmp_path: Path) -> None:
    result = recommendation(Machine(Memory(64 * GIB, 60 * GIB), 16), {"coder-1.5b": 40.0}, tmp_path)
    said = list(recommendation_lines(result))
    assert any("coder-1.5b" in line and "40 measured" in line for line in said)
    assert any("coder-7b" in line and "about 9.4" in line for line in said)
    assert any("About means an estimate from coder-1.5b" in line for line in said)
    assert said[-1] == "The default is coder-1.5b. To use coder-7b, set AGENT_KERNEL_MODEL=coder-7b."


def with_gpu(gib: int, tmp_path: Path) -> list[str]:
    return lines(Machine(Memory(64 * GIB, 60 * GIB), 16, (Gpu("NVIDIA T4", gib * GIB),)), tmp_path)


def test_a_gpu_is_named_with_the_commands_that_make_the_best_model_run_on_it(tmp_path: Path) -> None:
    said = with_gpu(16, tmp_path)
    assert "NVIDIA T4 (17.2 GB)" in said[0]
    assert said[1].startswith("On NVIDIA T4, coder-7b suits best: it takes 8.2 GB there in the precision nf4.")
    assert "agent-kernel model setup gpu, agent-kernel model pull Qwen/Qwen2.5-Coder-7B-Instruct" in said[1]
    assert "AGENT_KERNEL_MODEL=Qwen/Qwen2.5-Coder-7B-Instruct AGENT_KERNEL_PRECISION=nf4" in said[1]
    assert said[2] == "The models below run on the CPU."


@pytest.mark.parametrize(
    ("gib", "model", "precision"),
    [(24, "7B", "bf16"), (8, "7B", "nf4"), (6, "1.5B", "bf16"), (4, "1.5B", "nf4"), (3, "0.5B", "nf4")],
)
def test_the_memory_of_the_gpu_decides_the_model_and_its_precision(
    tmp_path: Path, gib: int, model: str, precision: str
) -> None:
    assert f"Qwen2.5-Coder-{model}-Instruct AGENT_KERNEL_PRECISION={precision}." in with_gpu(gib, tmp_path)[1]


def test_a_gpu_that_is_too_small_for_every_model_is_only_named(tmp_path: Path) -> None:
    assert with_gpu(1, tmp_path)[1] == "The models below run on the CPU."

"""Describes the machine for the choice of a model: its memory, CPU cores and GPUs.

The limits of control groups, such as a JupyterHub sets, are taken into account. No GPU library is imported.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from agent_kernel.engines.local.system_memory import Memory, read_memory

CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
NVIDIA = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
NVIDIA_S = 5.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of this machine. ``memory`` is in bytes."""

    name: str
    memory: int


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware of this machine. ``memory`` is None if the system does not report it. ``cores`` is the number of CPU
    cores that this process may use."""

    memory: Memory | None
    cores: int
    gpus: tuple[Gpu, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "memory_bytes": self.memory.total if self.memory else None,
            "available_bytes": self.memory.available if self.memory else None,
            "cores": self.cores,
            "gpus": [{"name": gpu.name, "memory_bytes": gpu.memory} for gpu in self.gpus],
        }


def read_machine() -> Machine:
    """Describe this machine. Blocking: the first call runs ``nvidia-smi`` if it is installed."""
    return Machine(read_memory(), usable_cores(), _gpus())


def usable_cores(limit: Path = CPU_LIMIT) -> int:
    """Return the number of cores that this process may use, at least 1: the cores of its affinity mask, or fewer if its
    control group limits its CPU time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # the file does not exist, or has "max", which means no limit
        quota, period = (int(word) for word in limit.read_text().split())
        cores = min(cores, round(quota / period))
    return max(1, cores)


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Parse the output of ``nvidia-smi``, whose lines are ``name, memory in MiB``. Lines without a memory size are
    ignored."""
    gpus = []
    for line in text.splitlines():
        name, _, memory = line.rpartition(",")
        if memory.strip().isdigit():
            gpus.append(Gpu(name.strip(), int(memory) * 2**20))
    return tuple(gpus)


@cache
def _gpus() -> tuple[Gpu, ...]:
    if shutil.which(NVIDIA[0]) is None:
        return ()
    try:
        completed = subprocess.run(NVIDIA, capture_output=True, text=True, timeout=NVIDIA_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return parse_gpus(completed.stdout) if completed.returncode == 0 else ()

"""Determines which models of the catalog fit a machine, their expected speed on it, and which model suits it best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from agent_kernel.engines.local.catalog.catalog import DEFAULTS, catalog, defaults
from agent_kernel.engines.local.catalog.catalog_entry import CatalogEntry, HubFile
from agent_kernel.engines.local.catalog.machine import Gpu, Machine
from agent_kernel.engines.local.catalog.pull_stages import megabytes
from agent_kernel.engines.local.system_memory import GIB, Memory

OPENVINO_OPEN, OPENVINO_BUILD, OPENVINO_BASE = 1.1, 2.1, 200 << 20
"""Memory of the worker with a Q8_0 file: OPENVINO_OPEN times the file size while the model is open, OPENVINO_BUILD
times the file size while its graph is built for the first time, and OPENVINO_BASE bytes in addition to either.

Measured with openvino-genai 2026.4, in MB of anonymous memory. SmolLM2-135M, a file of 145: open 300, peak of building
435. Qwen2.5-Coder-0.5B, 676: 801 and 1,513. Qwen2.5-Coder-1.5B, 1,895: open 2,143. That is 1.05 and 2.0 times the file
plus 150.
"""
OPENVINO_FLOOR = GIB
"""Smallest KV cache in bytes: openvino-genai accepts only whole GB."""
CANDIDATES = ("coder-7b", *DEFAULTS)
"""Models that can be recommended, best first. They belong to one family, in which a larger model is better."""
GGUF = "-GGUF"
"""Suffix of the id of a repository with GGUF files. The id without this suffix is that of the repository with the
safetensors of the same model."""
USABLE_SPEED = 5.0
"""Minimum speed in tokens per second at which a model that is not a default is recommended. A program of 100 tokens
then takes 20 seconds."""
MIN_BASIS_BYTES = 500_000_000
"""Smallest size in bytes of a model whose measured speed serves to estimate the speed of other models. A smaller model
spends too little of its time on reading weights for such an estimate."""
GPU_PRECISIONS: Mapping[str, float] = MappingProxyType({"bf16": 1.9, "nf4": 0.75})
"""The precisions in which a model can run on a GPU, best first, and the memory of its weights there as a multiple of
its Q8_0 file, which has 8.5 bits for each weight. In nf4 the embeddings stay in bf16: with Qwen2.5-Coder-7B, 6.5
billion weights take 4.1 bits and 1.1 billion take 16."""
GPU_BASE = 2 * GIB
"""Memory in bytes that the worker takes on a GPU in addition to the weights: CUDA itself, and a small KV cache."""
Basis: TypeAlias = Literal["measured", "scaled", "unknown"]


@dataclass(frozen=True, slots=True)
class Speed:
    """The decoding speed of a model; ``tokens_per_s`` is 0 if unknown. ``basis`` states where the figure comes from.
    ``measured``: an answer of this model on this machine. ``scaled``: an estimate from the measured speed of another
    model on this machine, by the bytes that each token reads."""

    tokens_per_s: float
    basis: Basis
    note: str


@dataclass(frozen=True, slots=True)
class Suitability:
    """The assessment of whether a model suits a machine. ``needed`` is the largest amount of memory in bytes that the
    worker takes. ``fits`` is whether the machine has that much in addition to the reserve for other programs, None if
    its memory is unknown. ``reason`` explains ``fits`` to the user."""

    entry: CatalogEntry
    needed: int
    fits: bool | None
    reason: str
    speed: Speed

    def to_json(self) -> dict[str, Any]:
        return {
            "memory_bytes": self.needed,
            "fits": self.fits,
            "fit_reason": self.reason,
            "tokens_per_s": round(self.speed.tokens_per_s, 1) or None,
            "speed_basis": self.speed.basis,
            "speed_note": self.speed.note,
        }


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """The best model for a GPU. ``model`` is the id on a hub of the safetensors from which the catalog's GGUF file was
    made; ``needed`` is the memory in bytes that it takes on the GPU."""

    gpu: Gpu
    entry: CatalogEntry
    model: str
    precision: str
    needed: int

    def to_json(self) -> dict[str, Any]:
        settings = {"AGENT_KERNEL_MODEL": self.model, "AGENT_KERNEL_PRECISION": self.precision}
        return {"gpu": self.gpu.name, "name": self.entry.name, "memory_bytes": self.needed, "settings": settings}


def choose_for_gpu(machine: Machine) -> GpuChoice | None:
    """Return the best of the models that can be recommended for the largest GPU, in the best precision that fits; None
    if there is no GPU or none fits."""
    for gpu in sorted(machine.gpus, key=lambda gpu: -gpu.memory)[:1]:
        for entry in (catalog()[name] for name in CANDIDATES):
            hub = next((source.repo for source in entry.sources if isinstance(source, HubFile)), "")
            for precision, factor in GPU_PRECISIONS.items():
                needed = int(entry.installed * factor) + GPU_BASE
                if hub.endswith(GGUF) and needed <= gpu.memory:
                    return GpuChoice(gpu, entry, hub.removesuffix(GGUF), precision, needed)
    return None


def assess(machine: Machine, speeds: Mapping[str, float]) -> dict[str, Suitability]:
    """Return the suitability of each catalog model by its name. ``speeds`` are the measured tokens per second by model
    name."""
    return {entry.name: _suitability(entry, machine, speeds) for entry in catalog().values()}


def recommend(machine: Machine, assessed: Mapping[str, Suitability]) -> str:
    """Return the name of the best model for the machine. The machine must have the memory that the catalog asks for,
    and a model that is not a default must be expected to reach USABLE_SPEED. If no model qualifies, return the smallest
    default."""
    total = machine.memory.total if machine.memory else 0
    for name in CANDIDATES:
        suitability = assessed.get(name)
        fast = name in DEFAULTS or (suitability is not None and suitability.speed.tokens_per_s >= USABLE_SPEED)
        if suitability is not None and fast and suitability.entry.memory <= total:
            return name
    return next((name for name in reversed(DEFAULTS) if name in assessed), "")


def default_names(machine: Machine) -> list[str]:
    """Return the names of the models that can be the default of the machine, best first."""
    return [entry.name for entry in defaults(machine.memory or Memory(0, 0))]


def q8_0_bytes(size: int) -> tuple[int, int]:
    """Return the memory in bytes of a worker with a Q8_0 file of ``size`` bytes, without the KV cache, as a pair: while
    its graph is built for the first time, and with the model opened."""
    return int(size * OPENVINO_BUILD) + OPENVINO_BASE, int(size * OPENVINO_OPEN) + OPENVINO_BASE


def _suitability(entry: CatalogEntry, machine: Machine, speeds: Mapping[str, float]) -> Suitability:
    peak, opened = q8_0_bytes(entry.installed)
    needed = max(peak, opened + OPENVINO_FLOOR)
    fits, reason = _fit(needed, machine)
    return Suitability(entry, needed, fits, reason, _speed(entry, speeds))


def _fit(needed: int, machine: Machine) -> tuple[bool | None, str]:
    memory = machine.memory
    if memory is None:
        return None, f"needs {megabytes(needed)} of memory; this system does not report how much there is"
    reserve = memory.reserve()
    if needed > memory.total - reserve:
        return False, (
            f"needs {megabytes(needed)} of memory; this machine has {megabytes(memory.total)}, of which "
            f"{megabytes(reserve)} are reserved for your programs"
        )
    if needed > memory.available - reserve:
        return True, (
            f"needs {megabytes(needed)} of memory; {megabytes(memory.available)} are free now, of which "
            f"{megabytes(reserve)} are reserved for your programs, so other programs have to end first"
        )
    return True, f"needs {megabytes(needed)} of {megabytes(memory.total)} of memory"


def _speed(entry: CatalogEntry, speeds: Mapping[str, float]) -> Speed:
    if entry.name in speeds:
        return Speed(speeds[entry.name], "measured", "measured on this machine")
    measured = [other for other in catalog().values() if other.name in speeds and other.installed >= MIN_BASIS_BYTES]
    if measured:
        # The largest measured model is used, because a small model spends a larger share of its time on work other than
        # reading weights.
        other = max(measured, key=lambda entry: entry.installed)
        speed = speeds[other.name] * other.installed / entry.installed
        return Speed(
            speed,
            "scaled",
            f"an estimate from {other.name}, which was measured here, by the bytes that each token reads",
        )
    return Speed(0.0, "unknown", "no model was measured on this machine yet")

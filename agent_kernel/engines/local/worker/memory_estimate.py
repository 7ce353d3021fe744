"""Estimates the memory that a model needs, and chooses a cache size that fits into the available memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agent_kernel.core.errors import OutOfMemory
from agent_kernel.engines.local.backend import LoadOptions
from agent_kernel.engines.local.catalog.installed_model import LocalModel
from agent_kernel.engines.local.catalog.model_directory import read_model_directory
from agent_kernel.engines.local.catalog.pull_stages import megabytes
from agent_kernel.engines.local.catalog.recommendation import (
    OPENVINO_BASE,
    OPENVINO_FLOOR,
    OPENVINO_OPEN,
    q8_0_bytes,
)
from agent_kernel.engines.local.openvino.graph_cache import is_built
from agent_kernel.engines.local.system_memory import GIB, Memory, MemoryHolder

TORCH_BASE = 900 << 20
"""Memory in bytes of torch, transformers and a prefill, in addition to the weights. SmolLM2-135M in bfloat16 (273 MB)
took 938 MB at its peak."""
TORCH_SPARE = 1.15
BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "int8": 1.1, "nf4": 0.7}
"""Average number of bytes per weight in memory. For quantised models it is higher than the name suggests, because
embeddings and the output layer are not quantised."""
CACHE_FLOOR = GIB // 4
"""Smallest cache on torch in bytes: about 10,000 tokens of a model with 1.5B parameters."""
CACHE_SHARE = 8


@dataclass(frozen=True, slots=True)
class Footprint:
    """The memory of a model in bytes, without the cache: ``peak`` while loading, ``loaded`` afterwards."""

    peak: int
    loaded: int


def footprint(model: LocalModel, options: LoadOptions, cache_dir: Path) -> Footprint:
    """Estimate the footprint of a model. For a model on another device than the CPU, only the main memory of its
    process counts. Blocking, since it reads the disk."""
    if options.device not in ("", "cpu"):
        return Footprint(TORCH_BASE, TORCH_BASE)
    if model.path.is_file() and _runs_in_openvino(model, options):
        peak, loaded = q8_0_bytes(model.path.stat().st_size)
        return Footprint(loaded if is_built(model.path, cache_dir) else peak, loaded)
    if model.path.is_file():
        loaded = int(model.path.stat().st_size * 2 * TORCH_SPARE) + TORCH_BASE
        return Footprint(loaded * 2, loaded)
    facts = read_model_directory(model.path)
    if facts.kind == "openvino":
        loaded = int(facts.weights * OPENVINO_OPEN) + OPENVINO_BASE
        return Footprint(loaded, loaded)
    weights = facts.parameters * BYTES[options.precision] if options.precision in BYTES else float(facts.weights)
    loaded = int(weights * TORCH_SPARE) + TORCH_BASE
    return Footprint(loaded, loaded)


def fit_options(
    model: LocalModel,
    options: LoadOptions,
    cache_dir: Path,
    *,
    memory: Memory,
    reserve: int,
    holders: Callable[[], list[MemoryHolder]],
) -> LoadOptions:
    """Return ``options`` with a cache size that fits. It is the requested size, or an eighth of the available memory if
    none is requested, but no more than is left beside the ``reserve``. Raises OutOfMemory if not even the smallest
    cache fits; the error names the ``holders`` of most memory."""
    need = footprint(model, options, cache_dir)
    free = memory.available - reserve
    floor = OPENVINO_FLOOR if _runs_in_openvino(model, options) else CACHE_FLOOR
    cache = min(int(options.cache_gb * GIB) or max(GIB, memory.available // CACHE_SHARE), free - need.loaded)
    if free < need.peak or cache < floor:
        raise out_of_memory(model.name, max(need.peak, need.loaded + floor), memory, reserve, holders())
    return replace(options, cache_gb=cache // GIB if floor == GIB else cache / GIB)


def out_of_memory(name: str, needed: int, memory: Memory, reserve: int, holders: list[MemoryHolder]) -> OutOfMemory:
    largest = ", ".join(f"{holder.name} holds {megabytes(holder.size)}" for holder in holders)
    free = f"Free some memory ({largest})" if largest else "Free some memory"
    return OutOfMemory(
        f"Not enough memory for {name}: it needs {megabytes(needed)}; {megabytes(memory.available)} of "
        f"{megabytes(memory.total)} are available, of which {megabytes(reserve)} are reserved for your programs.",
        hint=f"{free}, choose a smaller model, or set memory_reserve_gb lower.",
        details={
            "needed_bytes": needed,
            "available_bytes": memory.available,
            "total_bytes": memory.total,
            "reserve_bytes": reserve,
            "holders": [{"pid": holder.pid, "name": holder.name, "bytes": holder.size} for holder in holders],
        },
    )


def _runs_in_openvino(model: LocalModel, options: LoadOptions) -> bool:
    if options.backend:
        return options.backend == "openvino"
    return model.path.is_file() or (model.path / "openvino_model.xml").is_file()

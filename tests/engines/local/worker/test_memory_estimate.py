"""Tests whether a model fits into memory: first a smaller cache is tried, then the load is refused with numbers, before
anything is loaded.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from agent_kernel.core.errors import OutOfMemory
from agent_kernel.core.messages import user
from agent_kernel.core.protocols import EngineRequest, Sampling
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.backend import LoadOptions
from agent_kernel.engines.local.catalog.catalog import resolve
from agent_kernel.engines.local.catalog.installed_model import LocalModel
from agent_kernel.engines.local.system_memory import GIB, Memory, MemoryHolder
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from agent_kernel.engines.local.worker.memory_estimate import fit_options, footprint
from tests.engines.local.model_sources import model_files

TORCH = LoadOptions(backend="transformers")


@pytest.fixture
def gguf(tmp_path: Path) -> LocalModel:
    """A sparse file of 1 GiB; only its size is read."""
    path = tmp_path / "big.gguf"
    with path.open("wb") as file:
        file.truncate(GIB)
    return LocalModel("big", path, "0" * 64, "fence", 2048, "", str(path))


def fit(
    model: LocalModel, available: int, options: LoadOptions | None = None, cache: Path = Path("/none")
) -> LoadOptions:
    memory = Memory(16 * GIB, available)
    holding = [MemoryHolder(7, "the kernel of train.ipynb", 6 * 10**9)]
    return fit_options(model, options or LoadOptions(), cache, memory=memory, reserve=GIB, holders=lambda: holding)


def test_the_first_load_needs_more_than_what_stays(gguf: LocalModel) -> None:
    need = footprint(gguf, LoadOptions(), Path("/none"))
    assert need.peak > 2 * GIB > need.loaded > GIB


@pytest.mark.model("tiny")
def test_a_graph_that_is_kept_needs_no_more_than_what_stays() -> None:
    cache = Settings.from_env().cache_dir
    asyncio.run(load_engine(cache))
    need = footprint(resolve("tiny", cache), LoadOptions(), cache)
    assert need.peak == need.loaded


async def load_engine(cache: Path) -> None:
    engine = LocalEngine("tiny", cache)
    async with aclosing(engine.stream(EngineRequest((user("Hi"),), sampling=Sampling(max_tokens=1)))) as chunks:
        async for _ in chunks:
            pass
    await engine.aclose()


def test_the_cache_shrinks_to_what_there_is_before_anything_is_refused(gguf: LocalModel) -> None:
    plenty = fit(gguf, 15 * GIB, LoadOptions(cache_gb=6))
    tight = fit(gguf, 6 * GIB, LoadOptions(cache_gb=6))
    assert plenty.cache_gb == 6
    assert 1 <= tight.cache_gb < 6
    assert tight.cache_gb == int(tight.cache_gb), "openvino-genai takes whole GB"


def test_without_a_wish_the_cache_is_an_eighth_of_what_is_free(gguf: LocalModel) -> None:
    assert fit(gguf, 16 * GIB).cache_gb == 2


def test_too_little_is_told_with_numbers_and_who_holds_the_rest(gguf: LocalModel) -> None:
    with pytest.raises(OutOfMemory, match=r"needs 2\.\d GB; 2\.1 GB of 17\.2 GB") as failed:
        fit(gguf, 2 * GIB)
    assert "the kernel of train.ipynb holds 6.0 GB" in failed.value.hint
    assert "smaller model" in failed.value.hint
    details = failed.value.details
    assert details["needed_bytes"] > details["available_bytes"] - details["reserve_bytes"]
    assert details["holders"][0]["pid"] == 7


def test_the_reserve_is_not_touched(gguf: LocalModel) -> None:
    need = footprint(gguf, LoadOptions(), Path("/none"))
    just = max(need.peak, need.loaded + GIB) + GIB
    assert fit(gguf, just).cache_gb >= 1
    with pytest.raises(OutOfMemory):
        fit(gguf, just - 1)


def test_precision_decides_what_safetensors_take(tmp_path: Path) -> None:
    model_files(tmp_path / "model")
    model = LocalModel("m", tmp_path / "model", "0" * 64, "fence", 0, "", "")
    sizes = [footprint(model, replace(TORCH, precision=name), tmp_path).loaded for name in ("fp32", "bf16", "nf4")]
    assert sizes == sorted(sizes, reverse=True)
    as_stored = footprint(model, TORCH, tmp_path).loaded
    assert as_stored == pytest.approx(sizes[1], abs=1000), "it is stored in bfloat16, after a header"


def test_a_model_on_another_device_needs_little_of_this_memory(gguf: LocalModel) -> None:
    assert footprint(gguf, replace(TORCH, device="cuda:0"), Path("/none")).loaded < GIB

"""Tests that a model of an unknown architecture is refused before its weights are read, with a next step."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from agent_kernel.core.errors import ModelUnsupported
from agent_kernel.core.messages import user
from agent_kernel.core.protocols import EngineRequest
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from tests.engines.local.model_sources import model_files, write_gguf


async def load_and_raise(engine: LocalEngine) -> None:
    async with aclosing(engine), aclosing(engine.stream(EngineRequest((user("Hello"),)))) as chunks:
        async for _ in chunks:
            pass


async def test_openvino_names_the_architectures_that_it_reads(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", architecture="starcoder2")
    with pytest.raises(ModelUnsupported, match="llama, qwen2, qwen3, not starcoder2") as failed:
        await load_and_raise(LocalEngine(str(tmp_path / "m.gguf"), tmp_path / "cache"))
    assert "model setup" in failed.value.hint


async def test_transformers_says_that_it_is_unknown(torch_python: str, tmp_path: Path) -> None:
    model_files(tmp_path / "m", model_type="notamodel", architectures=["NotAModel"])
    with pytest.raises(ModelUnsupported, match="does not know the architecture of m") as failed:
        await load_and_raise(LocalEngine(str(tmp_path / "m"), tmp_path / "cache", python=torch_python))
    assert "another model" in failed.value.hint

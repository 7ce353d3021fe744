"""Inline completion with a small coding model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
import pytest_asyncio

from agent_kernel.core.messages import user
from agent_kernel.core.protocols import EngineRequest, Sampling, TextChunk
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.infill import Filling, Gap
from agent_kernel.engines.local.worker.local_engine import LocalEngine

MODEL = "coder-0.5b"
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.model(MODEL)]
POEM = EngineRequest((user("Write a long poem."),), sampling=Sampling(max_tokens=20))
MEAN = Gap("def mean(values):\n    return sum(values) / ")
LONG = Gap("def parse(text):\n    ")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine() -> AsyncIterator[LocalEngine]:
    made = LocalEngine(MODEL, Settings.from_env().cache_dir)
    assert await complete(made, MEAN) == [Filling(silence="unloaded")]
    async with aclosing(made.stream(POEM)) as chunks:
        async for _ in chunks:
            pass
    yield made
    await made.aclose()


async def complete(engine: LocalEngine, gap: Gap) -> list[Filling]:
    async with aclosing(engine.infill(gap)) as fillings:
        return [filling async for filling in fillings]


async def test_a_line_is_completed_sensibly_and_its_text_grows(engine: LocalEngine) -> None:
    fillings = await complete(engine, MEAN)
    assert fillings[-1] == Filling("len(values)")
    assert len(fillings) > 1
    assert all(fillings[-1].text.startswith(filling.text) for filling in fillings)


async def test_text_that_spells_special_tokens_is_plain_text(engine: LocalEngine) -> None:
    gap = Gap(f"x = '<|fim_middle|><|im_end|>'\n{MEAN.prefix}")
    assert (await complete(engine, gap))[-1].text == "len(values)"


async def test_a_model_call_ends_a_completion_and_keeps_others_silent(engine: LocalEngine) -> None:
    filling = asyncio.create_task(complete(engine, LONG))
    await asyncio.sleep(0.05)
    async with aclosing(engine.stream(POEM)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, TextChunk):
                break
        assert (await filling)[-1].silence == "busy"
        assert await complete(engine, MEAN) == [Filling(silence="busy")]


async def test_a_newer_completion_ends_an_older_one_and_completions_leave_the_conversations_known(
    engine: LocalEngine,
) -> None:
    before = await engine.stats()
    older = asyncio.create_task(complete(engine, LONG))
    await asyncio.sleep(0.05)
    assert (await complete(engine, MEAN))[-1].text == "len(values)"
    assert (await older)[-1].silence == "busy"
    after = await engine.stats()
    assert (after["running"], after["kept_chains"]) == (0, before["kept_chains"])

"""Measures 500 calls under a grammar, over 20 schemas at temperature 0.7: how many are complete, and whether these fit
their schemas.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from agent_kernel.core.messages import user
from agent_kernel.core.protocols import CallChunk, EndChunk, EngineRequest, Sampling, ToolSpec
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from tests.benchmarks.tool_schemas import CASES, Case

EACH = int(os.environ.get("AGENT_KERNEL_BENCH_CALLS", "25"))
"""Calls of each schema; fewer to try something."""
AT_ONCE, MAX_TOKENS, TEMPERATURE, ENDING = 8, 512, 0.7, 0.98


@dataclass
class Figures:
    name: str
    ended: int = 0
    misfits: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    different: set[str] = field(default_factory=set)

    def line(self) -> str:
        mean = sum(self.tokens) / len(self.tokens)
        return (
            f"{self.name:14} {self.ended:3} of {len(self.tokens)} ended, {len(self.misfits)} do not fit, "
            f"{len(self.different):2} different, tokens {mean:5.1f} mean {max(self.tokens):3} most"
        )


@pytest_asyncio.fixture(params=["coder-0.5b", "tiny"])
async def engine(request: pytest.FixtureRequest) -> AsyncGenerator[LocalEngine, None]:
    made = LocalEngine(request.param, Settings.from_env().cache_dir)
    yield made
    await made.aclose()


async def check_call(engine: LocalEngine, case: Case, seed: int, figures: Figures) -> None:
    spec = ToolSpec(case.name, case.description, case.schema, kind="function")
    sampling = Sampling(temperature=TEMPERATURE, seed=seed, max_tokens=MAX_TOKENS)
    asked = user(case.asked[seed % len(case.asked)])
    request = EngineRequest((asked,), (spec,), sampling, tool_choice=case.name)
    said = ""
    async with aclosing(engine.stream(request)) as chunks:
        async for chunk in chunks:
            match chunk:
                case CallChunk(call):
                    figures.ended += 1
                    written = json.dumps(dict(call.arguments), ensure_ascii=False)
                    figures.different.add(written)
                    for error in Draft202012Validator(dict(case.schema)).iter_errors(dict(call.arguments)):
                        figures.misfits.append(f"{error.message}: {written}")
                case EndChunk(reason, usage):
                    figures.tokens.append(usage.completion_tokens)
                    if reason != "calls":
                        figures.cut.append(said)
                case _:
                    said += getattr(chunk, "text", "")


@pytest.mark.model("coder-0.5b", "tiny")
@pytest.mark.slow
@pytest.mark.timeout(7200)
async def test_calls_end_by_themselves_and_those_that_do_fit(
    engine: LocalEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    table = [Figures(case.name) for case in CASES]
    places = asyncio.Semaphore(AT_ONCE)
    started = time.monotonic()

    async def one(at: int, seed: int) -> None:
        async with places:
            await check_call(engine, CASES[at], seed, table[at])
        done = sum(len(figures.tokens) for figures in table)
        if done % 25 == 0 or done <= len(CASES):
            misfit = sum(len(figures.misfits) for figures in table)
            with capsys.disabled():
                ended = sum(figures.ended for figures in table)
                print(
                    f"{time.monotonic() - started:6.0f} s: {done} calls, {ended} ended, {misfit} do not fit", flush=True
                )

    for at in range(len(CASES)):  # grammars are compiled one after the other; twenty at once would keep all waiting
        await one(at, 0)
    async with asyncio.TaskGroup() as group:
        for seed in range(1, EACH):  # different schemas stand side by side in the batch
            for at in range(len(CASES)):
                group.create_task(one(at, seed))
    calls, ended = EACH * len(CASES), sum(figures.ended for figures in table)
    misfits = [line for figures in table for line in figures.misfits]
    with capsys.disabled():
        print(f"\n{engine.info().model}: {ended} of {calls} calls ended by themselves, {len(misfits)} do not fit")
        for figures in table:
            print(" ", figures.line())
            for cut in figures.cut[:3]:
                print("     cut:", cut[:200].replace("\n", " "), "...", cut[-80:].replace("\n", " "))
    assert len(table) == 20
    assert not misfits, "\n".join(misfits[:10])
    assert ended >= ENDING * calls

"""Measures how long a user who pauses while typing waits for the completion, with the default models."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from contextlib import aclosing
from dataclasses import dataclass

import pytest

from agent_kernel.core.messages import user
from agent_kernel.core.protocols import EngineRequest, Sampling
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.infill import Gap
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from tests.benchmarks.conftest import Record

pytestmark = [pytest.mark.model("coder-0.5b", "coder-1.5b"), pytest.mark.slow, pytest.mark.timeout(900)]
SEED, KEY_S, DEBOUNCE_S, PAUSE_SHARE = 7, 0.2, 0.15, 0.12
CELLS = (
    "import pandas as pd\nrain = pd.read_csv('rain.csv', parse_dates=['day'])\nrain['month'] = rain['day'].dt.month\n",
    "monthly = rain.groupby('month')['millimetres'].mean()\nwettest = monthly.idxmax()\nprint(wettest)\n",
    "figure, axes = plt.subplots(figsize=(8, 4))\naxes.bar(monthly.index, monthly.values)\n"
    "axes.set_xlabel('month')\nfigure.tight_layout()\n",
    "dry = [day for day, amount in zip(rain['day'], rain['millimetres']) if amount == 0]\n"
    "share = len(dry) / len(rain)\nprint(f'{share:.0%} of the days were dry')\n",
)


@dataclass
class Wait:
    """Seconds from the end of the debounce to the first text and to the last; ``first`` is 0 if there was no text."""

    first: float = 0.0
    whole: float = 0.0
    text: str = ""


async def complete(engine: LocalEngine, gap: Gap) -> Wait:
    await asyncio.sleep(DEBOUNCE_S)
    wait, started = Wait(), time.monotonic()
    async with aclosing(engine.infill(gap)) as fillings:
        async for filling in fillings:
            assert filling.silence == ""
            if filling.text:
                wait.text, wait.first = filling.text, wait.first or time.monotonic() - started
    wait.whole = time.monotonic() - started
    return wait


async def type_code(engine: LocalEngine, context: str, code: str, chosen: random.Random) -> list[Wait]:
    """Type ``code`` key by key and return the measured waits. A key cancels the completion of the key before it;
    sometimes the user pauses until the completion has arrived.
    """
    waits = []
    for at in range(1, len(code) + 1):
        prefix = code[:at]
        if not prefix.rpartition("\n")[2].strip():
            await asyncio.sleep(KEY_S)  # JupyterLab asks for nothing at the beginning of a line
            continue
        call = asyncio.create_task(complete(engine, Gap(prefix, "", context)))
        pauses = chosen.random() < PAUSE_SHARE
        await asyncio.wait([call], timeout=None if pauses else KEY_S)
        if pauses:
            waits.append(call.result())
        call.cancel()
        await asyncio.wait([call])
    return waits


@pytest.mark.parametrize("model", ["coder-0.5b", "coder-1.5b"])
async def test_a_completion_is_there_soon_after_a_pause(
    model: str, record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, chosen = LocalEngine(model, Settings.from_env().cache_dir), random.Random(SEED)
    waits: list[Wait] = []
    async with aclosing(engine):
        request = EngineRequest((user("Say hello."),), sampling=Sampling(max_tokens=4))
        async with aclosing(engine.stream(request)) as chunks:
            async for _ in chunks:
                pass
        for at, code in enumerate(CELLS):
            waits += await type_code(engine, "\n".join(CELLS[:at]).strip(), code, chosen)
    found = [wait for wait in waits if wait.first]
    first = statistics.quantiles([wait.first for wait in found], n=20)
    whole = statistics.quantiles([wait.whole for wait in found], n=20)
    with capsys.disabled():
        print(
            f"\n{model}: {len(found)} of {len(waits)} pauses gave text; first text p50 {first[9]:.2f} s, p95 "
            f"{first[18]:.2f} s; whole text p50 {whole[9]:.2f} s, p95 {whole[18]:.2f} s; load {os.getloadavg()[0]:.1f}"
        )
    record(f"first text of an inline completion by `{model}`, 95 of 100", first[18] * 1000, None, "ms")
    record(f"whole inline completion by `{model}`, 95 of 100", whole[18] * 1000, None, "ms")
    assert len(found) > len(waits) / 2

"""Measures how much of its speed a user's computation keeps while a model decodes beside it, and what lowering the
model's priority changes.

The figures are shares of the speed that the same computation has alone. Run alone on the machine: make bench ARGS="-k
beside_kernel -s".
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import aclosing, suppress

import pytest

from agent_kernel.core.messages import user
from agent_kernel.core.protocols import EngineRequest, Sampling, TextChunk
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from tests.waiting import until

SECONDS = 6.0
STORY = EngineRequest((user("Tell a very long story about a fox."),), sampling=Sampling(max_tokens=4000))
LOOP = """
import sys, threading, time
import numpy
data = numpy.random.default_rng(0).random((400, 400))
counts = []
def work(until):
    count = 0
    while time.monotonic() < until:
        data @ data  # numpy lets Python's lock go meanwhile
        count += 1
    counts.append(count)
until = time.monotonic() + float(sys.argv[2])
threads = [threading.Thread(target=work, args=(until,)) for _ in range(int(sys.argv[1]))]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(counts))
"""


async def count_products(threads: int) -> int:
    """Return how many matrix products a separate program computes in SECONDS, as a training cell would."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", LOOP, str(threads), str(SECONDS)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env=environment)
    output, _ = await process.communicate()
    return int(output)


async def beside(engine: LocalEngine, threads: int) -> tuple[int, int]:
    """Return the matrix products of the computation and the pieces of text that the model decodes at the same time."""
    pieces = 0

    async def decode() -> None:
        nonlocal pieces
        while True:
            async with aclosing(engine.stream(STORY)) as chunks:
                async for chunk in chunks:
                    pieces += isinstance(chunk, TextChunk)

    decoding = asyncio.create_task(decode())
    await until(lambda: pieces, 600)
    pieces = 0
    done = await count_products(threads)
    decoding.cancel()
    with suppress(asyncio.CancelledError):
        await decoding
    return done, pieces


@pytest.mark.model("tiny")
@pytest.mark.parametrize("threads", [1, os.cpu_count() or 1], ids=["one thread", "all threads"])
async def test_a_computation_keeps_its_share_while_a_model_gives_way(threads: int) -> None:
    async with aclosing(LocalEngine("tiny", Settings.from_env().cache_dir)) as engine:
        alone = await count_products(threads)
        free, text = await beside(engine, threads)
        engine.give_way(True)
        polite, less = await beside(engine, threads)
        engine.give_way(False)
        again, back = await beside(engine, threads)
    print(f"\n{threads} of {os.cpu_count()} threads, as a share of the computation alone (and of the model's text):")
    print(
        f"beside a model {free / alone:.2f} (1), while it gives way {polite / alone:.2f} ({less / text:.2f}),", end=" "
    )
    print(f"afterwards {again / alone:.2f} ({back / text:.2f})")
    assert polite / alone >= 0.85
    assert polite >= free * 0.95
    assert back > less

"""Tests that a thousand requests that are cancelled at random moments leave no cache blocks, memory or
requests behind.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import aclosing, suppress

import pytest

from agent_kernel.core.messages import user
from agent_kernel.core.protocols import EndChunk, EngineRequest, Sampling, TextChunk, WaitChunk
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.backend import LoadOptions
from agent_kernel.engines.local.decoding.known_prefixes import CHAINS
from agent_kernel.engines.local.system_memory import resident_bytes
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from tests.narrowing import not_none

pytestmark = [pytest.mark.model("tiny"), pytest.mark.slow, pytest.mark.timeout(1800)]
REQUESTS = int(os.environ.get("AGENT_KERNEL_BENCH_REQUESTS", "1000"))
SEED, TOGETHER, AT_ONCE = 11, 24, 8
GROWTH = 64 * 2**20
"""Bytes that the worker may keep: the ids of CHAINS conversations, and what the allocator does not give back."""
WORDS = ("fox", "river", "stone", "wind", "night", "song")


def words(chosen: random.Random, count: int) -> str:
    return " ".join(chosen.choice(WORDS) for _ in range(count))


async def send_and_cancel(engine: LocalEngine, chosen: random.Random, number: int) -> str:
    """Send one request, cancel it at a random moment, and return the state in which it was cancelled."""
    request = EngineRequest(
        (user(f"{number} {words(chosen, chosen.choice((5, 30, 300)))}"),),
        sampling=Sampling(max_tokens=chosen.randrange(1, 24), temperature=1.0, seed=number),
        session=str(number % 10),
    )
    moment, texts = chosen.choice(("waiting", "soon", "later", "end")), chosen.randrange(1, 10)
    state = "sent"

    async def read() -> None:
        nonlocal state
        async with aclosing(engine.stream(request)) as chunks:
            count = 0
            async for chunk in chunks:
                match chunk:
                    case WaitChunk("queued"):
                        state = "queued"
                    case TextChunk():
                        state, count = "decoding", count + 1
                    case EndChunk():
                        state = "done"
                if (moment, state) == ("waiting", "queued") or (moment == "later" and count == texts):
                    return

    task = asyncio.create_task(read())
    if moment == "soon":
        await asyncio.sleep(chosen.random() * 0.5)
        task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return state


async def fill_cache(engine: LocalEngine, chosen: random.Random) -> None:
    """Use every block of the cache once, so that its memory is allocated before the measurement begins."""
    tokens = engine.info().details["cache_tokens"]
    for _ in range(tokens // 7000 + 2):
        request = EngineRequest((user(words(chosen, 7000)),), sampling=Sampling(max_tokens=1))
        async with aclosing(engine.stream(request)) as chunks:
            async for _ in chunks:
                pass


async def idle(engine: LocalEngine) -> dict[str, float]:
    while True:
        stats = dict(await engine.stats())
        if not stats["running"] and not stats["queued"] and not stats["cache_used"]:
            return stats
        await asyncio.sleep(0.1)


async def test_requests_stopped_at_random_moments_leave_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = random.Random(SEED)
    options = LoadOptions(cache_gb=1, at_once=AT_ONCE)
    engine = LocalEngine("tiny", Settings.from_env().cache_dir, options=options)
    ended: dict[str, int] = {}
    async with aclosing(engine):
        await send_and_cancel(engine, chosen, 0)
        await fill_cache(engine, chosen)
        pid = not_none(engine.worker_pid)
        tasks, start = len(asyncio.all_tasks()), resident_bytes(pid)
        numbers = iter(range(1, REQUESTS + 1))

        async def some() -> None:
            for number in numbers:
                state = await send_and_cancel(engine, random.Random(SEED * REQUESTS + number), number)
                ended[state] = ended.get(state, 0) + 1

        await asyncio.gather(*(some() for _ in range(TOGETHER)))
        stats = await asyncio.wait_for(idle(engine), 30)
        grown = resident_bytes(pid) - start
        assert engine.worker_pid == pid
        inboxes = set(not_none(engine._worker)._inboxes)
        with capsys.disabled():
            print(
                f"\n{sum(ended.values())} requests, seed {SEED}, ended {ended}; worker {start / 2**20:.0f} MiB "
                f"{grown / 2**20:+.1f}; blocks in use {stats['cache_used']:.0%}, "
                f"{stats['kept_chains']:.0f} conversations kept"
            )
        assert sum(ended.values()) == REQUESTS
        assert all(ended.get(state, 0) > REQUESTS / 100 for state in ("sent", "queued", "decoding", "done"))
        assert inboxes <= {0}
        assert len(asyncio.all_tasks()) <= tasks
        assert stats["kept_chains"] <= CHAINS
        assert grown <= GROWTH

"""Tests the local engine beside a user's own programs: a real worker, and memory that a real process holds."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from agent_kernel.core.errors import OutOfMemory
from agent_kernel.core.messages import user
from agent_kernel.core.protocols import EngineRequest, Sampling, TextChunk
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.system_memory import GIB, Memory, resident_bytes
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from tests.narrowing import not_none
from tests.waiting import until

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.model("tiny"),
    pytest.mark.skipif(sys.platform != "linux", reason="memory and cores are read and set on Linux only"),
]
CACHE = Settings.from_env().cache_dir
LONG = EngineRequest((user("Tell a long story about a fox."),), sampling=Sampling(max_tokens=2000))
SHORT = EngineRequest((user("Hello"),), sampling=Sampling(max_tokens=2))
ROOM = Memory(8 * GIB, 6 * GIB)


class Told:
    """A memory reading that the test sets."""

    def __init__(self) -> None:
        self.memory = ROOM

    def __call__(self) -> Memory:
        return self.memory


@pytest_asyncio.fixture(loop_scope="module")
async def told() -> AsyncGenerator[tuple[LocalEngine, Told], None]:
    memory = Told()
    engine = LocalEngine("tiny", CACHE, memory=memory)
    yield engine, memory
    await engine.aclose()


async def answer(engine: LocalEngine, request: EngineRequest = SHORT) -> str:
    async with aclosing(engine.stream(request)) as chunks:
        return "".join([chunk.text async for chunk in chunks if isinstance(chunk, TextChunk)])


async def test_an_idle_model_is_unloaded_and_one_that_answers_for_longer_is_not() -> None:
    engine = LocalEngine("tiny", CACHE, idle_unload_s=1.0)
    started = 0.0
    async with aclosing(engine.stream(LONG)) as chunks:
        async for chunk in chunks:
            started = started or (time.monotonic() if isinstance(chunk, TextChunk) else 0.0)
            if started and time.monotonic() - started > 2.5:
                break
    pid = not_none(engine.worker_pid)
    await until(lambda: not Path(f"/proc/{pid}").exists())
    assert engine.info().state == "unloaded"
    assert "there was no request" in engine.info().details["unloaded"]


async def test_unloading_says_what_it_gave_back(told: tuple[LocalEngine, Told]) -> None:
    engine, _ = told
    await answer(engine)
    assert await engine.unload() > 100 * 2**20
    assert engine.info().state == "unloaded"
    assert await engine.unload() == 0
    assert await answer(engine)


async def test_a_load_that_does_not_fit_is_refused_before_a_worker_starts(told: tuple[LocalEngine, Told]) -> None:
    engine, memory = told
    memory.memory = Memory(8 * GIB, GIB + 200 * 2**20)
    with pytest.raises(OutOfMemory, match="Not enough memory for tiny"):
        await answer(engine)
    assert engine.worker_pid is None
    memory.memory = ROOM
    assert await answer(engine)


async def test_while_memory_is_short_what_runs_is_answered_and_nothing_new_begins(
    told: tuple[LocalEngine, Told],
) -> None:
    engine, memory = told
    async with aclosing(engine.stream(LONG)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, TextChunk):
                break
        memory.memory = Memory(8 * GIB, 900 * 2**20)
        refused: list[OutOfMemory] = []
        for _ in range(100):
            await anext(chunks)
            try:
                await answer(engine)
            except OutOfMemory as error:
                refused.append(error)
                break
            await asyncio.sleep(0.05)
        assert refused
        assert "so that your programs have memory" in refused[0].message
        assert isinstance(await anext(chunks), TextChunk)
    await until(lambda: engine.info().state == "unloaded")
    memory.memory = ROOM
    assert await answer(engine)


async def test_when_almost_nothing_is_left_the_worker_ends_at_once(told: tuple[LocalEngine, Told]) -> None:
    engine, memory = told

    async def run_out() -> None:
        async with aclosing(engine.stream(LONG)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, TextChunk):
                    memory.memory = Memory(8 * GIB, 100 * 2**20)

    with pytest.raises(OutOfMemory, match="so that your programs have memory"):
        await run_out()
    assert engine.worker_pid is None
    memory.memory = ROOM
    assert await answer(engine)


async def test_a_load_is_given_up_when_the_memory_goes_meanwhile(told: tuple[LocalEngine, Told]) -> None:
    engine, memory = told

    async def run_out() -> None:
        async with aclosing(engine.stream(SHORT)) as chunks:
            async for _ in chunks:
                if engine.worker_pid is not None:
                    memory.memory = Memory(8 * GIB, 100 * 2**20)

    with pytest.raises(OutOfMemory, match="so that your programs have memory"):
        await run_out()
    assert engine.worker_pid is None


@contextmanager
def holding(size: int) -> Iterator[int]:
    """Start a user's program that really holds ``size`` bytes of memory, and yield its pid."""
    code = f"data = bytearray(b'x') * {size}; print('ready', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert not_none(process.stdout).readline() == b"ready\n"
        yield process.pid
        process.communicate(b"\n")


async def test_a_program_that_really_takes_the_memory_gets_the_models_too() -> None:
    """Of 4 GiB, so that what else runs on this machine does not count."""
    theirs: list[int] = []
    engine = LocalEngine("tiny", CACHE, memory=lambda: Memory(8 * GIB, 4 * GIB - sum(map(resident_bytes, theirs))))
    await answer(engine)
    pid = not_none(engine.worker_pid)
    with holding(int(3.2 * GIB)) as program:
        theirs.append(program)
        await until(lambda: not Path(f"/proc/{pid}").exists())
        with pytest.raises(OutOfMemory) as failed:
            await answer(engine)
        assert failed.value.details["available_bytes"] < GIB
        assert program in [holder["pid"] for holder in failed.value.details["holders"]]
    assert await answer(engine)
    await engine.aclose()


async def test_the_worker_takes_one_core_less_while_a_person_computes_and_comes_back() -> None:
    engine = LocalEngine("tiny", CACHE)
    engine.give_way(True)
    assert await answer(engine), "it begins with less"
    pid = not_none(engine.worker_pid)
    mine = os.sched_getaffinity(0)
    await until(lambda: len(cores(pid)) == max(1, len(mine) - 1))
    engine.give_way(False)
    await until(lambda: cores(pid) == mine)
    await until(lambda: {os.sched_getscheduler(task) for task in tasks(pid)} == {os.SCHED_OTHER})
    await engine.aclose()


def tasks(pid: int) -> list[int]:
    return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]


def cores(pid: int) -> set[int]:
    """Return the cores on which any thread of the process may run."""
    found: set[int] = set()
    for task in tasks(pid):
        try:
            found |= os.sched_getaffinity(task)
        except ProcessLookupError:
            continue
    return found

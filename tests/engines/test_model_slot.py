"""Tests that only one local model is in memory at a time."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing

import pytest

from agent_kernel.core.messages import user
from agent_kernel.core.protocols import Chunk, EngineRequest, TextChunk, WaitChunk
from agent_kernel.engines.fair_queue import FairQueue
from agent_kernel.engines.model_slot import SlottedEngine
from agent_kernel.engines.scripted import ScriptedEngine

REQUEST = EngineRequest((user("x"),))


class Loaded(ScriptedEngine):
    """An engine that records when its model is in memory: from a request until it is closed."""

    in_memory: list[Loaded]

    def __init__(self, in_memory: list[Loaded], delay: float = 0.02) -> None:
        super().__init__([{"text": "abcd", "deltas": 4, "delay": delay, "loop": True}])
        self.in_memory = in_memory

    async def stream(self, request: EngineRequest):  # type: ignore[no-untyped-def]  # as the engine's
        if self not in self.in_memory:
            self.in_memory.append(self)
        assert self.in_memory == [self]
        async with aclosing(super().stream(request)) as chunks:
            async for chunk in chunks:
                assert self.in_memory == [self]
                yield chunk

    async def aclose(self) -> None:
        if self in self.in_memory:
            self.in_memory.remove(self)


@pytest.fixture
def pair() -> tuple[SlottedEngine, SlottedEngine]:
    queue, in_memory = FairQueue(), list[Loaded]()
    return SlottedEngine(Loaded(in_memory), queue), SlottedEngine(Loaded(in_memory), queue)


async def answer(engine: SlottedEngine) -> list[Chunk]:
    async with aclosing(engine.stream(REQUEST)) as chunks:
        return [chunk async for chunk in chunks]


def positions(chunks: list[Chunk]) -> list[int]:
    return [chunk.position for chunk in chunks if isinstance(chunk, WaitChunk) and chunk.position]


async def test_another_model_takes_the_place_of_one_that_is_idle(pair: tuple[SlottedEngine, SlottedEngine]) -> None:
    for engine in (*pair, *pair):
        assert any(isinstance(chunk, TextChunk) for chunk in await answer(engine))


async def test_requests_to_one_model_run_at_once(pair: tuple[SlottedEngine, SlottedEngine]) -> None:
    answers = await asyncio.gather(*(answer(pair[0]) for _ in range(4)))
    assert [positions(chunks) for chunks in answers] == [[]] * 4


async def test_another_model_waits_until_the_first_has_nothing_to_do(pair: tuple[SlottedEngine, SlottedEngine]) -> None:
    answers = await asyncio.gather(*(answer(engine) for engine in (pair[0], pair[1], pair[0], pair[1])))
    assert [bool(positions(chunks)) for chunks in answers] == [False, True, True, True]
    assert all(any(isinstance(chunk, TextChunk) for chunk in chunks) for chunks in answers)


async def test_a_call_whose_turn_has_come_no_longer_waits(pair: tuple[SlottedEngine, SlottedEngine]) -> None:
    first, second = await asyncio.gather(answer(pair[0]), answer(pair[1]))
    assert [chunk for chunk in first if isinstance(chunk, WaitChunk)] == []
    assert [chunk for chunk in second if isinstance(chunk, WaitChunk)][-1] == WaitChunk("thinking")


async def test_a_reader_that_leaves_gives_up_its_place(pair: tuple[SlottedEngine, SlottedEngine]) -> None:
    first = asyncio.create_task(answer(pair[0]))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(answer(pair[1]))
    await asyncio.sleep(0.1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with aclosing(pair[0].stream(REQUEST)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, TextChunk):
                break
    await first
    assert await asyncio.wait_for(answer(pair[1]), 30)


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_comes_and_goes_no_call_starves_and_one_model_is_in_memory(seed: int) -> None:
    chance = random.Random(seed)
    queue, in_memory = FairQueue(chance.randint(0, 3)), list[Loaded]()
    engines = [Loaded(in_memory, delay=0.0) for _ in range(3)]

    async def one(number: int) -> None:
        call = queue.stream(chance.choice(engines), REQUEST, chance.choice("aaabc"), number)
        async with aclosing(call) as chunks:
            assert any([isinstance(chunk, TextChunk) async for chunk in chunks])

    tasks = []
    for number in range(40):
        tasks.append(asyncio.create_task(one(number)))
        if chance.random() < 0.3:
            chance.choice(tasks).cancel()
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    async with asyncio.timeout(20):
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [error for error in ended if error is not None and not isinstance(error, asyncio.CancelledError)] == []
    assert (queue.waiting, queue.in_use) == (0, 0)

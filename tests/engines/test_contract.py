"""Tests the contract of engines, with every engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
import pytest_asyncio

from agent_kernel.core.messages import Message, assistant, user
from agent_kernel.core.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    Engine,
    EngineRequest,
    Sampling,
    TextChunk,
    WaitChunk,
)
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.backend import LoadOptions
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.engine import OpenAIEngine
from agent_kernel.engines.scripted import ScriptedEngine
from tests.engines.openai_api.model_servers import ModelServer
from tests.engines.openai_api.talk import text_of
from tests.narrowing import instance_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.model("tiny")]
STORY = user("Tell a long story about a fox.")


ENGINES = [
    "scripted",
    "local",
    pytest.param("transformers", marks=pytest.mark.torch),
    pytest.param("openai_api", marks=pytest.mark.torch),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ENGINES)
async def engine(request: pytest.FixtureRequest) -> AsyncGenerator[Engine, None]:
    made: Engine
    if request.param == "scripted":
        made = ScriptedEngine([{"text": "once upon a time " * 8, "deltas": 16, "delay": 0.005, "loop": True}])
    elif request.param == "openai_api":
        served: ModelServer = request.getfixturevalue("model_server")
        made = OpenAIEngine(Endpoint(served.url, served.model, context_length=2048))
    elif request.param == "local":
        made = LocalEngine("tiny", Settings.from_env().cache_dir)
    else:
        python = str(request.getfixturevalue("torch_python"))
        made = LocalEngine(
            "tiny", Settings.from_env().cache_dir, options=LoadOptions(backend="transformers"), python=python
        )
    yield made
    await made.aclose()


async def ask_engine(
    engine: Engine, *messages: Message, tokens: int = 24, greedy: bool = False, continues: bool = False
) -> list[Chunk]:
    sampling = Sampling(max_tokens=tokens, temperature=0 if greedy else None)
    request = EngineRequest(messages, sampling=sampling, session="contract", continues=continues)
    async with aclosing(engine.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


async def test_an_answer_comes_in_pieces_and_ends_once(engine: Engine) -> None:
    chunks = await ask_engine(engine, STORY)

    assert sum(isinstance(chunk, TextChunk) for chunk in chunks) > 1
    assert [isinstance(chunk, EndChunk) for chunk in chunks].count(True) == 1
    assert isinstance(chunks[-1], EndChunk)


async def test_waiting_is_told_before_anything_else(engine: Engine) -> None:
    chunks = await ask_engine(engine, STORY)

    waits = [isinstance(chunk, WaitChunk) for chunk in chunks]
    assert waits == sorted(waits, reverse=True)


async def test_usage_counts_what_was_read_and_written(engine: Engine) -> None:
    end = instance_of(EndChunk, (await ask_engine(engine, STORY))[-1])

    assert end.usage.prompt_tokens > 0
    assert end.usage.completion_tokens > 0
    assert 0 < end.usage.first_token_s <= end.usage.seconds


async def test_without_tools_nothing_is_called(engine: Engine) -> None:
    chunks = await ask_engine(engine, user("Compute 2 + 2 with Python."))

    assert not any(isinstance(chunk, CallChunk) for chunk in chunks)


async def test_closing_the_stream_stops_it_and_the_next_one_works(engine: Engine) -> None:
    request = EngineRequest((STORY,), sampling=Sampling(max_tokens=400))
    async with aclosing(engine.stream(request)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, TextChunk):
                break

    assert text_of(await ask_engine(engine, user("Hello")))


@pytest.mark.parametrize("engine", ["scripted", "local"], indirect=True)  # no server has to tell what it reused
async def test_the_second_turn_reuses_the_first(engine: Engine) -> None:
    first = text_of(await ask_engine(engine, STORY))
    end = instance_of(EndChunk, (await ask_engine(engine, STORY, assistant(first), user("Go on.")))[-1])

    assert 0 < end.usage.reused_tokens < end.usage.prompt_tokens


@pytest.mark.parametrize("engine", ["scripted", "local"], indirect=True)  # another server may not continue answers
async def test_the_rest_of_an_answer_is_what_the_whole_answer_has_there(engine: Engine) -> None:
    assert engine.info().continues
    whole = text_of(await ask_engine(engine, STORY, greedy=True))
    beginning = whole[: whole.rindex(" ", 0, len(whole) // 2)]
    rest = await ask_engine(engine, STORY, assistant(beginning), greedy=True, continues=True)

    assert f"{beginning}{text_of(rest)}".startswith(whole)


async def test_requests_at_once_each_get_their_own_answer(engine: Engine) -> None:
    answers = await asyncio.gather(*(ask_engine(engine, user(f"Count from {n}.")) for n in range(4)))

    assert all(text_of(chunks) and isinstance(chunks[-1], EndChunk) for chunks in answers)


async def test_info_names_the_model(engine: Engine) -> None:
    info = engine.info()

    assert info.model
    assert info.local
    assert info.context_length > 0

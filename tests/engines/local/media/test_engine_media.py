"""Tests a vision model of random weights in a real worker: pictures from the user and from tools, over
several turns.
"""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import PIL.Image
import pytest
import pytest_asyncio

from agent_kernel.core.errors import EngineError, InvalidRequest
from agent_kernel.core.events import EventBody, Notice
from agent_kernel.core.messages import Media, Message, ToolCall, assistant, tool_result, user
from agent_kernel.core.protocols import Chunk, EngineRequest, Sampling, TextChunk, TokenLogprob, ToolSpec
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.backend import LoadOptions
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent, TurnRequest
from tests.engines.openai_api.talk import end_of

ROOT = Path(__file__).parents[4]
MODELS = Path(__file__).parents[1] / "tiny_models.py"
PYTHON = ToolSpec("python", "Runs code.", {"type": "object"}, kind="python.sandbox")
CALL = ToolCall("call_1", "python", {"code": "plot()"})
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]


def image(seed: int) -> Media:
    out = io.BytesIO()
    PIL.Image.linear_gradient("L").rotate(90 * seed).resize((60, 40 + seed)).convert("RGB").save(out, "PNG")
    return Media.of("image/png", out.getvalue())


async def make_engine(kind: str, python: str, directory: Path) -> LocalEngine:
    command = [python, str(MODELS), kind, str(directory / kind)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TQDM_DISABLE": "1"}
    await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, check=True)
    options = LoadOptions(device="cpu", precision="fp32", cache_gb=0.1)
    # How full this machine's memory is, is not what is asked here.
    return LocalEngine(str(directory / kind), directory / "cache", options=options, python=python, memory=lambda: None)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LocalEngine, None]:
    found = await make_engine("llava", torch_python, tmp_path_factory.mktemp("seeing"))
    yield found
    await found.aclose()


async def ask_engine(engine: LocalEngine, *messages: Message, tools: tuple[ToolSpec, ...] = ()) -> list[Chunk]:
    request = EngineRequest(messages, tools, Sampling(max_tokens=4, logprobs=True))
    async with aclosing(engine.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


def thought(chunks: list[Chunk]) -> list[TokenLogprob]:
    return [token for chunk in chunks if isinstance(chunk, TextChunk) for token in chunk.logprobs]


async def test_a_model_that_sees_says_so_once_it_is_loaded(engine: LocalEngine) -> None:
    await ask_engine(engine, user("hi"))

    assert engine.info().vision
    assert engine.info().details["decoding"] == "one by one"


async def test_another_picture_is_another_answer(engine: LocalEngine) -> None:
    one, again, other = [await ask_engine(engine, user("What is this?", [image(seed)])) for seed in (1, 1, 2)]

    assert thought(one) == pytest.approx(thought(again)) or [t.text for t in thought(one)] == [
        t.text for t in thought(again)
    ]
    assert [t.logprob for t in thought(one)] != pytest.approx([t.logprob for t in thought(other)], abs=1e-3)


async def test_the_next_turn_reuses_the_picture(engine: LocalEngine) -> None:
    first = end_of(await ask_engine(engine, user("What do you see here?", [image(3)])))
    history = (user("What do you see here?", [image(3)]), assistant("A fox."), user("Which colour?"))
    second = end_of(await ask_engine(engine, *history))

    assert first.usage.reused_tokens < first.usage.prompt_tokens / 2
    assert first.usage.prompt_tokens <= second.usage.reused_tokens < second.usage.prompt_tokens


@pytest.mark.parametrize("tools", [(), (PYTHON,)])
async def test_what_a_tool_shows_is_seen(engine: LocalEngine, tools: tuple[ToolSpec, ...]) -> None:
    before = (user("Plot it."), assistant("", [CALL]))
    blind = await ask_engine(engine, *before, tool_result(CALL, "drawn", "success"), tools=tools)
    seen = await ask_engine(engine, *before, tool_result(CALL, "drawn", "success", [image(1)]), tools=tools)

    assert end_of(seen).usage.prompt_tokens > end_of(blind).usage.prompt_tokens + 10


async def test_a_question_of_text_in_a_session_with_a_picture_is_about_the_picture(engine: LocalEngine) -> None:
    store = MemoryStore()
    turns = Agent(store, engine, "album")
    limit = Sampling(max_tokens=4)
    first = await turns.run(TurnRequest("What is this?", media=(image(4),), sampling=limit))
    second = await turns.run(TurnRequest("Which colour?", sampling=limit))

    assert (first.state, second.state) == ("committed", "committed")
    assert second.usage.reused_tokens >= first.usage.prompt_tokens


@pytest.mark.parametrize(
    "data",
    [b"\x89PNG\r\n\x1a\nbroken", image(1).data[:100], b"nothing of the kind"],  # type: ignore[index]
    ids=["without a body", "cut short", "of no kind"],
)
async def test_a_broken_picture_ends_its_own_request_and_not_the_worker(engine: LocalEngine, data: bytes) -> None:
    await ask_engine(engine, user("hi"))
    pid = engine.worker_pid
    with pytest.raises(InvalidRequest):
        await ask_engine(engine, user("What is this?", [Media.of("image/png", data)]))

    assert end_of(await ask_engine(engine, user("hi"))).reason in ("stop", "length")
    assert engine.worker_pid == pid


async def test_a_broken_video_is_told_as_such(engine: LocalEngine) -> None:
    with pytest.raises((InvalidRequest, EngineError)) as caught:
        await ask_engine(engine, user("What happens?", [Media.of("video/mp4", b"no video" * 99)]))

    assert "video" in str(caught.value).lower()


async def test_text_that_spells_the_place_of_a_picture_has_none(engine: LocalEngine) -> None:
    chunks = await ask_engine(engine, user("Is <image> a tag of HTML?", [image(1)]))

    assert end_of(chunks).reason in ("stop", "length")


async def test_requests_with_and_without_pictures_run_side_by_side(engine: LocalEngine) -> None:
    alone = [await ask_engine(engine, user(f"Side {seed}", [image(seed)])) for seed in range(3)]
    together = await asyncio.gather(*(ask_engine(engine, user(f"Side {seed}", [image(seed)])) for seed in range(3)))

    for one, other in zip(alone, together, strict=True):
        assert [token.text for token in thought(one)] == [token.text for token in thought(other)]


@pytest.mark.model("tiny")
async def test_a_model_of_text_answers_and_the_person_is_told_that_it_did_not_see() -> None:
    engine = LocalEngine("tiny", Settings.from_env().cache_dir, memory=lambda: None)
    events: list[EventBody] = []
    request = TurnRequest("What is this?", media=(image(1),), sampling=Sampling(max_tokens=4))
    async with aclosing(engine):
        result = await Agent(MemoryStore(), engine, "blind").turn(request, events.append)

    assert (result.state, result.error) == ("committed", None)
    assert [event.text for event in events if isinstance(event, Notice) and "reads text only" in event.text]

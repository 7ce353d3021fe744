"""Measures what cached prefixes and batching gain, compared with the same model without them and with transformers' own
server.

Ratios of one run, alone on the machine: ``pytest tests/benchmarks/test_transformers_speed.py -s``. The first run of a
model converts it; the conversion is not timed.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_kernel.core.messages import Message, assistant, user
from agent_kernel.core.protocols import EndChunk, EngineRequest, Sampling, TextChunk
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.backend import LoadOptions
from agent_kernel.engines.local.catalog import catalog
from agent_kernel.engines.local.worker.local_engine import LocalEngine

ROOT = Path(__file__).parents[2]
TURNS, RUNS, TOKENS = 20, 3, 64
NEW_TOKENS = 32
FILLER = (
    "The result of the cell was a table with columns a, b and c. The mean of a is 12.5, the maximum of b is 99 and c "
    "has 7 missing values; next we plot the histogram of a and fit a line. "
)
QUESTIONS = ("What is the mean of a?", "How large is the maximum of b?", "How many values of c are missing?")
TOPICS = ("a fox", "the sea", "a clock", "an old bridge")
START_S = 300.0
OVER_GENERATE = {"transformers": 8.0, "openvino": 10.0}
OVER_SERVE = 2.0
FOUR_OVER_ONE = 3.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
MODELS = [
    pytest.param("tiny", marks=pytest.mark.model("tiny")),
    pytest.param("coder-0.5b", marks=pytest.mark.model("coder-0.5b")),
]


@dataclass(frozen=True)
class Turn:
    """The text, the end and the times of one answer, as a client of the engine sees them."""

    text: str
    first_token_s: float
    end: EndChunk


def history() -> list[Message]:
    """Return nineteen turns of a notebook, about 3,800 tokens."""
    messages = []
    for number in range(1, TURNS):
        messages += [user(f"Turn {number}: {FILLER * 4}What next?"), assistant("Then plot the histogram of a.")]
    return messages[:-1]


def plain(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.text} for message in messages]


async def turn(engine: LocalEngine, messages: Sequence[Message], tokens: int = 8) -> Turn:
    started = time.perf_counter()
    first, text = 0.0, ""
    async with aclosing(engine.stream(EngineRequest(tuple(messages), sampling=Sampling(max_tokens=tokens)))) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, TextChunk):
                first = first or time.perf_counter() - started
                text += chunk.text
            elif isinstance(chunk, EndChunk):
                return Turn(text, first, chunk)
    raise AssertionError("the stream has no end")


@asynccontextmanager
async def running(model: str, backend: str, python: str) -> AsyncGenerator[LocalEngine, None]:
    options = LoadOptions(backend=backend, device="cpu")
    given: dict[str, Any] = {"python": python} if backend == "transformers" else {}
    async with aclosing(LocalEngine(model, Settings.from_env().cache_dir, options=options, **given)) as engine:
        await turn(engine, [user("Hello")])
        yield engine


async def next_turns(engine: LocalEngine) -> tuple[list[Message], list[Turn]]:
    """Run the twentieth turn in several wordings. Return the messages of the last one and all results."""
    messages = history()
    before = await turn(engine, messages)
    said = before.end.usage.prompt_tokens + before.end.usage.completion_tokens
    turns: list[Turn] = []
    asked: list[Message] = []
    for question in QUESTIONS:
        asked = [*messages, assistant(before.text), user(question)]
        turns.append(await turn(engine, asked))
        usage = turns[-1].end.usage
        assert usage.prompt_tokens - said <= NEW_TOKENS
        assert usage.reused_tokens >= said - 2 * 32
    return asked, turns


def generate(python: str, model: str, messages: Sequence[Message]) -> dict[str, Any]:
    cache = Settings.from_env().cache_dir
    path = catalog.resolve(model, cache).path
    script = ROOT / "tests/benchmarks/full_generate.py"
    done = subprocess.run(
        [python, str(script), str(path), str(cache)],
        input=json.dumps(plain(messages)),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@contextmanager
def served(python: str, directory: str, dtype: str) -> Iterator[str]:
    """Run ``transformers serve`` with its own continuous batching and yield its URL. It has enough blocks for the chat,
    and prefill steps no smaller than it needs.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [
            *(str(Path(python).parent / "transformers"), "serve", directory, "--host", "127.0.0.1"),
            *("--port", str(port), "--device", "cpu", "--dtype", dtype, "--continuous-batching"),
            *("--cb-num-blocks", "60", "--cb-max-batch-tokens", "2048", "--attn-implementation", "sdpa"),
        ],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(process, url)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(process: subprocess.Popen[bytes], url: str) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert process.poll() is None, "transformers serve ended"
        try:
            if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.25)
    raise AssertionError("transformers serve did not answer")


def first_content(client: httpx.Client, url: str, model: str, messages: Sequence[Message]) -> tuple[float, str]:
    """Return the seconds to the first piece of text, and the text."""
    body = {"model": model, "messages": plain(messages), "max_tokens": 8, "temperature": 0, "stream": True}
    started, first, text = time.perf_counter(), 0.0, ""
    with client.stream("POST", f"{url}/v1/chat/completions", json=body) as reply:
        reply.raise_for_status()
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                piece = json.loads(line[6:])["choices"][0]["delta"].get("content")
                first = first or (time.perf_counter() - started if piece else 0.0)
                text += piece or ""
    return first, text


@pytest.mark.parametrize("backend", ["transformers", "openvino"])
@pytest.mark.parametrize("model", MODELS)
async def test_the_twentieth_turn_starts_sooner_than_a_whole_prompt(
    model: str, backend: str, torch_python: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(model, backend, torch_python) as engine:
        messages, turns = await next_turns(engine)
    whole = generate(torch_python, model, messages)
    ours, full = statistics.median(turn.first_token_s for turn in turns), whole["first_token_s"][0]
    usage = turns[-1].end.usage
    with capsys.disabled():
        print(
            f"\n{model}, {backend}: turn {TURNS}, {usage.prompt_tokens} tokens, {usage.reused_tokens} reused: "
            f"first token {ours:.3f} s; generate() of {whole['prompt_tokens']} tokens in {whole['dtype']} "
            f"{full:.3f} s: {full / ours:.1f}x"
        )

    assert full >= OVER_GENERATE[backend] * ours


@pytest.mark.parametrize("model", MODELS)
async def test_the_next_turn_starts_sooner_than_on_transformers_serve(
    model: str, torch_python: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(model, "transformers", torch_python) as engine:
        messages, turns = await next_turns(engine)
    whole = generate(torch_python, model, messages)
    directory = whole["directory"]
    theirs = []
    with served(torch_python, directory, whole["dtype"]) as url, httpx.Client(timeout=600, trust_env=False) as client:
        first_content(client, url, directory, [user("Hello")])
        _, text = first_content(client, url, directory, history())
        for question in QUESTIONS:
            asked = [*history(), assistant(text), user(question)]
            theirs.append(first_content(client, url, directory, asked)[0])
    ours, served_s = statistics.median(turn.first_token_s for turn in turns), statistics.median(theirs)
    with capsys.disabled():
        print(
            f"\n{model}: next turn's first token {ours:.3f} s; transformers serve --continuous-batching "
            f"{served_s:.3f} s: {served_s / ours:.1f}x"
        )

    assert min(theirs) > 0
    assert served_s >= OVER_SERVE * ours


@pytest.mark.parametrize("model", MODELS)
async def test_four_sessions_at_once_are_worth_three(
    model: str, torch_python: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def rate(engine: LocalEngine, topics: Sequence[str]) -> float:
        started = time.perf_counter()
        asked = [[user(f"Tell a long story about {topic}, in many sentences.")] for topic in topics]
        ends = await asyncio.gather(*(turn(engine, messages, TOKENS) for messages in asked))
        return sum(one.end.usage.completion_tokens for one in ends) / (time.perf_counter() - started)

    async with running(model, "transformers", torch_python) as engine:
        # The best of some: other processes on the machine only ever take away.
        one = max([await rate(engine, TOPICS[:1]) for _ in range(RUNS)])
        four = max([await rate(engine, TOPICS) for _ in range(RUNS)])
    with capsys.disabled():
        print(f"\n{model}: one stream {one:.1f} tokens/s, four at once {four:.1f} tokens/s: {four / one:.1f}x")

    assert four >= FOUR_OVER_ONE * one

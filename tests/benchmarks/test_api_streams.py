"""Measures many concurrent streams on one server, with clients that disconnect and resume, while Jupyter's own routes
are used; then the same requests to transformers' server.

One server process, with the clients in this one. Run alone on the machine: make bench ARGS="-k api_streams -s".
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_kernel.core.messages import user
from agent_kernel.core.settings import Settings
from tests.benchmarks.conftest import Record
from tests.benchmarks.test_transformers_speed import generate, served
from tests.server import PLAIN, TOKEN, AgentServer

STREAMS, SECONDS = 50, 60.0
WORDS = 100
TEXT = "word " * WORDS
SCRIPT = [{"text": TEXT, "deltas": WORDS, "delay": 0.04, "loop": True}]
"""About four seconds of 25 pieces a second, which the log joins to 20 events."""
LAG_S = 0.05
LEAVES = 0.3
"""The share of readings that are broken off somewhere and gone on with."""
SETTLED_S = 12.0
"""After the last turn, for keep-alives and logs of calls that nobody can name."""
REQUESTS, AT_ONCE, TOKENS = 24, 4, 8

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass
class Seen:
    """Measurements of all streams together. ``lags`` are the seconds between the numbering of an event and its arrival
    here.
    """

    lags: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    jupyter: list[float] = field(default_factory=list)
    turns: int = 0
    left: int = 0
    chats: int = 0


async def frames(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data: {"):
            yield json.loads(line[6:])


async def read_turn(client: httpx.AsyncClient, seen: Seen, draw: random.Random) -> None:
    """Read one turn to its end over several connections, and check that every event comes once and that no word is
    missing.
    """
    started = time.time()
    turn = (await client.post("agent/v1/turns", json={"prompt": "go"})).raise_for_status().json()["turn"]
    after, text, over = 0, "", False
    while not over:
        leaves_at = after + draw.randint(1, 60) if draw.random() < LEAVES else 1 << 30
        headers = {"Last-Event-ID": str(after)} if after else {}
        async with client.stream("GET", f"agent/v1/turns/{turn}/events", headers=headers) as response:
            response.raise_for_status()
            events = frames(response)
            async with aclosing(events):  # type: ignore[type-var]  # an async generator
                async for event in events:
                    now = time.time()
                    assert event["seq"] == after + 1, "no event is lost or repeated"
                    after = event["seq"]
                    if leaves_at == 1 << 30 and event["type"] == "text.delta" and not headers:
                        seen.lags.append(now - event["time"])
                    if event["type"] == "text.delta":
                        seen.first += [] if text else [now - started]
                        text += event["data"]["text"]
                    over = event["type"] == "turn.finished"
                    if after >= leaves_at and not over:
                        seen.left += 1
                        break
    assert text == TEXT
    seen.turns += 1


async def chat(client: httpx.AsyncClient, seen: Seen, draw: random.Random) -> None:
    """Read one completion. Sometimes disconnect in the middle of it, which stops its turn."""
    body = {"model": "default", "messages": [{"role": "user", "content": "go"}], "stream": True}
    leaves_at = draw.randint(1, 60) if draw.random() < LEAVES else 1 << 30
    text, ended = "", ""
    async with client.stream("POST", "agent/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        count = 0
        async for chunk in frames(response):
            count += 1
            for choice in chunk.get("choices", []):
                text += choice["delta"].get("content") or ""
                ended = choice["finish_reason"] or ended
            if count >= leaves_at:
                seen.left += 1
                return
    assert (text, ended) == (TEXT, "stop")
    seen.chats += 1


async def one_client(url: str, seen: Seen, until: float, number: int) -> None:
    draw = random.Random(number)
    async with httpx.AsyncClient(
        base_url=url, headers={"Authorization": f"token {TOKEN}"}, timeout=60, **PLAIN
    ) as client:
        await asyncio.sleep(draw.random() * 2)
        while time.monotonic() < until:
            await (chat if number % 5 == 0 else read_turn)(client, seen, draw)


async def jupyters_own(client: httpx.AsyncClient, until: float) -> list[float]:
    """Request a route of Jupyter ten times a second until ``until``. Return the seconds of each request."""
    took = []
    while time.monotonic() < until:
        started = time.perf_counter()
        (await client.get("api/kernelspecs")).raise_for_status()
        took.append(time.perf_counter() - started)
        await asyncio.sleep(0.1)
    return took


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


async def count_resources(client: httpx.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("probe/held")).raise_for_status().json()
    return found


async def test_fifty_streams_lose_nothing_and_leave_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = AgentServer(tmp_path / "server", SCRIPT, extensions=["tests.benchmarks.probe_tasks"])
    server.directory.mkdir()
    with server:
        await server.start()
        async with server.client() as client:
            await one_client(server.url, Seen(), time.monotonic() + 3, 1)  # what is loaded at first use
            await asyncio.sleep(2)
            before = await count_resources(client)
            idle = await jupyters_own(client, time.monotonic() + 10)
            seen, until = Seen(), time.monotonic() + SECONDS
            streams = [one_client(server.url, seen, until, number) for number in range(STREAMS)]
            beside = asyncio.create_task(jupyters_own(client, until))
            await asyncio.gather(*streams)
            busy = await beside
            await asyncio.sleep(SETTLED_S)
            after = await count_resources(client)
        with capsys.disabled():
            print(
                f"\n{STREAMS} streams for {SECONDS:.0f} s: {seen.turns} turns and {seen.chats} completions to their "
                f"end, {seen.left} times left; event lag median {1e3 * statistics.median(seen.lags):.1f} ms, "
                f"p99 {1e3 * p99(seen.lags):.1f} ms; Jupyter's own route p99 {1e3 * p99(busy):.0f} ms, idle "
                f"{1e3 * p99(idle):.0f} ms; memory {before['kb'] >> 10} MB before, {after['kb'] >> 10} MB after"
            )
            print(f"tasks {len(before['tasks'])} -> {len(after['tasks'])}, files {before['files']} -> {after['files']}")
    new = [name for name in after["tasks"] if name not in before["tasks"] and not name.startswith("Task-")]
    assert new == [], "no task is left"
    assert len(after["tasks"]) <= len(before["tasks"]) + 2
    assert after["files"] <= before["files"] + 2
    assert seen.left > STREAMS
    assert p99(seen.lags) < LAG_S


@dataclass(frozen=True)
class Rate:
    per_s: float
    first_byte: float


async def rate(url: str, model: str, headers: dict[str, str]) -> Rate:
    """Return the requests per second with AT_ONCE concurrent requests, and the seconds to the first text of a single
    one.
    """

    async def ask(client: httpx.AsyncClient, number: int, *, stream: bool) -> float:
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": f"Say the number {number}."}],
            "max_tokens": TOKENS,
            "temperature": 0,
            "stream": stream,
        }
        started, first = time.perf_counter(), 0.0
        if not stream:
            answer = (await client.post("chat/completions", json=body)).raise_for_status().json()
            assert answer["choices"][0]["message"]["content"]
            return 0.0
        async with client.stream("POST", "chat/completions", json=body) as response:
            response.raise_for_status()
            async for chunk in frames(response):
                if not first and chunk["choices"] and chunk["choices"][0]["delta"].get("content"):
                    first = time.perf_counter() - started
        return first

    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=300, **PLAIN) as client:
        await ask(client, 0, stream=True)
        firsts = [await ask(client, number, stream=True) for number in range(1, 6)]
        places = asyncio.Semaphore(AT_ONCE)

        async def placed(number: int) -> None:
            async with places:
                await ask(client, number, stream=False)

        started = time.perf_counter()
        await asyncio.gather(*(placed(number) for number in range(10, 10 + REQUESTS)))
        return Rate(REQUESTS / (time.perf_counter() - started), statistics.median(firsts))


@pytest.mark.model("tiny")
async def test_more_requests_are_answered_than_by_transformers_serve_and_none_begins_twice_as_late(
    tmp_path: Path, torch_python: str, capsys: pytest.CaptureFixture[str], record: Record
) -> None:
    cache = str(Settings.from_env().cache_dir)
    server = AgentServer(tmp_path / "server", traits={"engine": "local", "model": "tiny", "cache_dir": cache})
    server.directory.mkdir()
    with server:
        await server.start()
        ours = await rate(server.agent_url, "tiny", {"Authorization": f"token {TOKEN}"})
    whole = generate(torch_python, "tiny", [user("Hello")])
    with served(torch_python, whole["directory"], whole["dtype"]) as url:
        theirs = await rate(f"{url}/v1", whole["directory"], {})
    with capsys.disabled():
        print(
            f"\ntiny, {AT_ONCE} at once: ours {ours.per_s:.1f} requests/s, first text {ours.first_byte:.3f} s; "
            f"transformers serve {theirs.per_s:.1f} and {theirs.first_byte:.3f}: {ours.per_s / theirs.per_s:.1f}x, "
            f"{theirs.first_byte / ours.first_byte:.1f}x"
        )
    record("requests, several clients at once", ours.per_s, theirs.per_s, "per second")
    record("first text of one client", 1e3 * ours.first_byte, 1e3 * theirs.first_byte, "ms")
    assert ours.per_s > theirs.per_s
    assert ours.first_byte < 2 * theirs.first_byte

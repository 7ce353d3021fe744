"""Tests the Ray Serve application on a real cluster of two nodes, deployed from the ``serve.yaml`` of the
documentation."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio
import yaml

from agent_kernel.core.messages import Message, Text, Usage
from agent_kernel.core.protocols import EndChunk, EngineRequest, TextChunk
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.engine import OpenAIEngine
from tests.engines.openai_api.talk import end_of, text_of, waits_of
from tests.narrowing import not_none
from tests.processes import descendants, survivors
from tests.server import PLAIN, free_port

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[3]
KEY, VARIABLE = "key-of-the-cluster", "AGENT_KERNEL_TEST_CLUSTER_KEY"
SESSIONS = [f"session-{number}" for number in range(20)]
SCRIPT: list[dict[str, Any]] = [
    {"when": "slowly", "text": "one two three four", "deltas": 4, "delay": 3, "loop": True},
    {"when": "weather", "calls": [{"name": "weather", "arguments": {"city": "Paris"}}], "loop": True},
    {"text": "Hello there.", "deltas": 3, "loop": True},
]
WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@dataclass(frozen=True, slots=True)
class Cluster:
    process: asyncio.subprocess.Process
    url: str

    async def ask(self, command: str) -> Any:
        not_none(self.process.stdin).write(f"{command}\n".encode())
        return await self.answer()

    async def answer(self) -> Any:
        line = await asyncio.wait_for(not_none(self.process.stdout).readline(), 300)
        assert line, "the cluster has ended; its output is above"
        return json.loads(line)

    async def replicas(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self.ask("replicas")
        return found

    async def until(self, holds: Callable[[list[dict[str, Any]]], bool], within_s: float = 120) -> list[dict[str, Any]]:
        async with asyncio.timeout(within_s):
            while not holds(found := await self.replicas()):
                await asyncio.sleep(0.1)
        return found

    def engine(self) -> OpenAIEngine:
        return OpenAIEngine(Endpoint(self.url, api_key_env=VARIABLE))


def config(directory: Path, port: int) -> dict[str, Any]:
    """Return the ``serve.yaml`` of the documentation with the scripted engine in two replicas, one for each node."""
    text = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    whole: dict[str, Any] = yaml.safe_load(block)
    whole["http_options"]["port"] = port
    whole["proxy_location"] = "HeadOnly"  # both nodes of the test have the same address
    (application,) = whole["applications"]
    (deployment,) = application["deployments"]
    script = directory / "script.json"
    script.write_text(json.dumps(SCRIPT))
    application["args"]["settings"] = {"engine": "scripted", "script": str(script)}
    application["runtime_env"]["env_vars"] = {application["args"]["api_key_env"]: KEY}
    deployment["ray_actor_options"]["num_cpus"] = 1
    deployment["autoscaling_config"] |= {"min_replicas": 2, "max_replicas": 2}
    return whole


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(ray_python: str) -> AsyncGenerator[Cluster, None]:
    # The paths of Ray's sockets would be too long below pytest's directory.
    directory, port = Path(tempfile.mkdtemp(prefix="ray-")), free_port()
    (directory / "serve.yaml").write_text(yaml.safe_dump(config(directory, port)))
    process = await asyncio.create_subprocess_exec(
        ray_python,
        str(Path(__file__).with_name("ray_cluster.py")),
        str(directory / "serve.yaml"),
        str(directory / "ray"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=sys.__stderr__,
        # Ray writes the address of the cluster into RAY_TMPDIR/ray, which must exist; by default that is /tmp/ray.
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(directory), "HOME": str(directory)},
    )
    cluster = Cluster(process, f"http://127.0.0.1:{port}/v1")
    os.environ[VARIABLE] = KEY
    try:
        assert len(set(await cluster.answer())) == 2
        await until_up(cluster)
        yield cluster
    finally:
        del os.environ[VARIABLE]
        family = descendants(process.pid)
        not_none(process.stdin).close()
        for left in await survivors(family, 40):
            left.send(signal.SIGKILL)
        await process.wait()
        shutil.rmtree(directory)


async def until_up(cluster: Cluster) -> None:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, **PLAIN) as http, asyncio.timeout(300):
        while len(await cluster.replicas()) < 2 or not await answers(http, cluster):
            await asyncio.sleep(0.2)


async def answers(http: httpx.AsyncClient, cluster: Cluster) -> bool:
    try:
        return (await http.get(f"{cluster.url}/models")).status_code == 200
    except httpx.TransportError:
        return False


async def turn(engine: OpenAIEngine, session: str, *words: str) -> Usage:
    """Send a conversation whose last message is the last of ``words``, and return the usage of its answer."""
    messages = [Message(("user", "assistant")[i % 2], (Text(text),)) for i, text in enumerate(words)]
    text, end = "", None
    async with aclosing(engine.stream(EngineRequest(tuple(messages), session=session))) as chunks:
        async for chunk in chunks:
            text += chunk.text if isinstance(chunk, TextChunk) else ""
            end = chunk if isinstance(chunk, EndChunk) else end
    assert text == "Hello there."
    return not_none(end).usage


async def with_engine(cluster: Cluster, use: Callable[[OpenAIEngine], Awaitable[None]]) -> None:
    async with aclosing(cluster.engine()) as engine:
        await use(engine)


async def test_openais_client_gets_answers_streamed_and_whole_and_calls(cluster: Cluster) -> None:
    hi: Any = [{"role": "user", "content": "hi"}]
    async with openai.AsyncOpenAI(base_url=cluster.url, api_key=KEY, max_retries=0) as client:
        whole = await client.chat.completions.create(model="default", messages=hi)
        assert whole.choices[0].message.content == "Hello there."
        streamed = await client.chat.completions.create(model="default", messages=hi, stream=True)
        pieces = [chunk.choices[0].delta.content or "" async for chunk in streamed]
        assert "".join(pieces) == "Hello there."
        assert len([piece for piece in pieces if piece]) == 3
        asked: Any = [{"role": "user", "content": "the weather"}]
        called = await client.chat.completions.create(model="default", messages=asked, tools=[WEATHER])
        assert called.choices[0].finish_reason == "tool_calls"
        (call,) = called.choices[0].message.tool_calls or []
        assert call.type == "function"
        assert json.loads(call.function.arguments) == {"city": "Paris"}


async def test_a_request_without_the_key_is_refused(cluster: Cluster) -> None:
    async with openai.AsyncOpenAI(base_url=cluster.url, api_key="another", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError, match="Bearer KEY"):
            await client.models.list()


async def test_follow_up_turns_reach_the_replica_that_has_seen_the_session(cluster: Cluster) -> None:
    async def converse(engine: OpenAIEngine) -> None:
        before = {one["node"]: one["requests"] for one in await cluster.replicas()}
        assert len(before) == 2
        first = [await turn(engine, session, f"hi from {session}") for session in SESSIONS]
        assert {usage.reused_tokens for usage in first} == {0}
        after = {one["node"]: one["requests"] for one in await cluster.replicas()}
        assert all(after[node] > before[node] for node in before), "both replicas answer"
        follow_ups = [
            await turn(engine, session, f"hi from {session}", "Hello there.", "again") for session in SESSIONS
        ]
        assert sum(usage.reused_tokens == 0 for usage in follow_ups) == 0

    await with_engine(cluster, converse)


@pytest.mark.parametrize("streams", [True, False])
async def test_a_client_that_disconnects_frees_its_slot_at_the_replica(cluster: Cluster, streams: bool) -> None:
    body = {"stream": streams, "messages": [{"role": "user", "content": "slowly"}]}
    headers = {"Authorization": f"Bearer {KEY}", "x-session-id": "leaves"}
    async with httpx.AsyncClient(headers=headers, **PLAIN) as http:
        asking = asyncio.create_task(http.post(f"{cluster.url}/chat/completions", json=body, timeout=60))
        await cluster.until(lambda found: sum(one["ongoing"] for one in found) == 1)
        assert not asking.done()
        asking.cancel()
        await cluster.until(lambda found: sum(one["ongoing"] for one in found) == 0, within_s=10)


async def test_an_answer_whose_replica_is_killed_goes_on_at_another_one_and_the_replica_is_replaced(
    cluster: Cluster,
) -> None:
    async def go_on(engine: OpenAIEngine) -> None:
        slow = EngineRequest((Message("user", (Text("slowly"),)),), session="lost")
        async with aclosing(engine.stream(slow)) as chunks:
            seen = [await anext(chunks)]
            assert isinstance(seen[0], TextChunk)
            answering = await cluster.until(lambda found: any(one["ongoing"] for one in found))
            (killed,) = [one["pid"] for one in answering if one["ongoing"]]
            os.kill(killed, signal.SIGKILL)
            seen += [chunk async for chunk in chunks]
        assert text_of(seen) == "one two three four"
        assert "in the middle of" in waits_of(seen)[0]
        # The prompt is "user slowly assistant one", the rest "two three four": each word counts once.
        used = end_of(seen).usage
        assert used.prompt_tokens + used.completion_tokens == 7
        for session in SESSIONS:
            await turn(engine, session, f"hi from {session}", "Hello there.", "again", "Hello there.", "still there?")
        found = await cluster.until(lambda found: len(found) == 2)
        assert killed not in {one["pid"] for one in found}

    await with_engine(cluster, go_on)

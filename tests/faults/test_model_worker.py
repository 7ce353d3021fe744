"""Tests the death of the model worker, and of its server."""

from __future__ import annotations

import asyncio
import signal

import httpx
import pytest

from agent_kernel.core.settings import Settings
from tests.jupyter_ext.conftest import ServerFactory
from tests.processes import Process, descendants, survivors
from tests.server import AgentServer, Json, followed, start_turn, text_of, wait_for_event

pytestmark = pytest.mark.model("tiny")
LOCAL = {"engine": "local", "model": "tiny", "cache_dir": str(Settings.from_env().cache_dir)}
LONG = {"temperature": 0, "max_tokens": 600}
SHORT = {"temperature": 0, "max_tokens": 8}
COUNT = "Write a very long story about a lighthouse keeper, a storm and a ship. Do not stop."


def model_workers(server: AgentServer) -> list[Process]:
    return [one for one in descendants(server.pid) if "engines/local/worker/bootstrap.py" in one.command]


def model_worker(server: AgentServer) -> Process:
    [worker] = model_workers(server)
    return worker


async def first_worker(server: AgentServer) -> Process:
    """Return the model worker as soon as it exists, while it is still loading."""
    for _ in range(600):
        if found := model_workers(server):
            return found[0]
        await asyncio.sleep(0.05)
    raise AssertionError("no model worker was started")


async def items(client: httpx.AsyncClient, session: str) -> list[Json]:
    found: list[Json] = (await client.get(f"agent/v1/sessions/{session}/items")).json()["items"]
    return found


async def test_a_killed_worker_fails_its_turn_and_the_next_turn_gets_a_new_one(agent_server: ServerFactory) -> None:
    server = await agent_server(traits=LOCAL)
    async with server.client() as client:
        other = await start_turn(client, "Say hello.", sampling=SHORT, max_tool_rounds=0)
        assert (await followed(client, other["turn"]))[-1]["data"]["state"] == "committed"
        before = await items(client, other["session"])
        worker = model_worker(server)

        started = await start_turn(client, COUNT, sampling=LONG, max_tool_rounds=0)
        await wait_for_event(client, started["turn"], "text.delta")
        worker.send(signal.SIGKILL)
        events = await followed(client, started["turn"])
        assert events[-1]["data"]["state"] == "failed"
        assert events[-1]["data"]["error"]["code"] == "engine_crashed"
        assert await survivors([worker], 30) == []

        again = await start_turn(client, "Say hello.", session=started["session"], sampling=SHORT, max_tool_rounds=0)
        replied = await followed(client, again["turn"])
        assert replied[-1]["data"]["state"] == "committed"
        assert text_of(replied)
        assert model_worker(server).pid != worker.pid
        assert await items(client, other["session"]) == before

        said = await items(client, started["session"])
        cut = next(item for item in said if item["turn"] == started["turn"] and item["message"]["role"] == "assistant")
        assert cut["message"]["status"] == "interrupted"
        assert cut["message"]["content"] == text_of(events)
    new = model_worker(server)
    await server.stop()
    assert await survivors([new], 30) == []


async def test_the_worker_ends_with_a_server_that_was_killed(agent_server: ServerFactory) -> None:
    server = await agent_server(traits=LOCAL)
    async with server.client() as client:
        started = await start_turn(client, COUNT, sampling=LONG, max_tool_rounds=0)
        await wait_for_event(client, started["turn"], "text.delta")
        worker = model_worker(server)
        await server.kill()
    # The promise is two seconds; a machine that is busy with other tests is given some more.
    assert await survivors([worker], 20) == []


async def test_a_worker_killed_while_it_loads_fails_those_who_wait_for_it(agent_server: ServerFactory) -> None:
    server = await agent_server(traits=LOCAL)
    async with server.client() as client:
        started = await start_turn(client, "Say hello.", sampling=SHORT, max_tool_rounds=0)
        (await first_worker(server)).send(signal.SIGKILL)
        end = (await followed(client, started["turn"]))[-1]["data"]
        assert end["error"]["code"] == "engine_crashed", end
        again = await start_turn(client, "Say hello.", session=started["session"], sampling=SHORT, max_tool_rounds=0)
        assert (await followed(client, again["turn"]))[-1]["data"]["state"] == "committed"

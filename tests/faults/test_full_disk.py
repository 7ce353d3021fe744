"""Tests a full disk when data must be saved."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from agent_kernel.sessions.export.transcript import parse
from tests.faults.conftest import SmallDisk
from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, Json, follow, followed, start_turn

SCRIPT = [
    {"when": "much", "text": "much " * 800_000, "deltas": 3, "delay": 1.0, "loop": True},
    {"text": "All right.", "loop": True},
]


def fill(disk: Path, *, leave: int) -> Path:
    """Write a file that occupies all space except ``leave`` bytes, and return its path."""
    ballast = disk / "ballast"
    space = os.statvfs(disk)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - leave)
    return ballast


async def run_turn(server: AgentServer, prompt: str, **body: str) -> Json:
    async with server.client() as client:
        started = await start_turn(client, prompt, **body)
        events = await followed(client, started["turn"])
        assert events[-1]["data"]["state"] == "committed", events[-1]
        return started


async def test_a_turn_that_fills_the_disk_fails_clearly_and_the_session_goes_on_when_there_is_space(
    agent_server: ServerFactory, small_disk: SmallDisk
) -> None:
    disk = small_disk("data", 8)
    server = await agent_server(SCRIPT, data_dir=disk)
    first = await run_turn(server, "hello")
    async with server.client() as client:
        started = await start_turn(client, "much", session=first["session"])
        events: list[Json] = []
        ballast: Path | None = None
        async for event in follow(client, started["turn"]):
            events.append(event)
            if ballast is None and event["type"] == "text.delta":
                ballast = await asyncio.to_thread(fill, disk, leave=256 * 1024)
        assert events[-1]["data"]["state"] == "failed"
        assert events[-1]["data"]["error"]["code"] == "store_full"
        assert "space" in events[-1]["data"]["error"]["message"].lower()
        assert str(disk) not in json.dumps(events), "a client learns a path of the server"

        assert (await client.get("agent/v1/health")).status_code == 200
        kept = (await client.get(f"agent/v1/sessions/{first['session']}/items")).json()["items"]
        assert [item["message"]["content"] for item in kept[:2]] == ["hello", "All right."]

        assert ballast is not None
        ballast.unlink()
        again = await start_turn(client, "hello again", session=first["session"])
        assert (await followed(client, again["turn"]))[-1]["data"]["state"] == "committed"
        body = (await client.get(f"agent/v1/sessions/{first['session']}/items")).json()
        assert [turn["state"] for turn in body["turns"]] == ["committed", "failed", "committed"]
        assert [item["seq"] for item in body["items"]] == list(range(1, len(body["items"]) + 1))


async def test_a_server_with_no_space_at_all_refuses_turns_in_words_and_recovers(
    agent_server: ServerFactory, small_disk: SmallDisk
) -> None:
    disk = small_disk("data", 4)
    server = await agent_server(SCRIPT, data_dir=disk)
    first = await run_turn(server, "hello")
    ballast = await asyncio.to_thread(fill, disk, leave=0)
    async with server.client() as client:
        refusals = []
        for _ in range(20):  # the journal has pages of its own to use up first
            reply = await client.post("agent/v1/turns", json={"prompt": "more " * 2000, "session": first["session"]})
            if reply.status_code == 202:
                end = (await followed(client, reply.json()["turn"]))[-1]["data"]
                refusals += [end["error"]] if end["state"] == "failed" else []
            else:
                assert reply.status_code == 507
                refusals.append(reply.json()["error"])
        assert refusals
        assert {refusal["code"] for refusal in refusals} == {"store_full"}
        assert str(disk) not in json.dumps(refusals)
        items = await client.get(f"agent/v1/sessions/{first['session']}/items")
        assert str(disk) not in items.text
        assert (await client.get("api/status")).status_code == 200
    ballast.unlink()
    await run_turn(server, "hello again", session=first["session"])


async def test_a_sidecar_that_does_not_fit_leaves_the_old_one_and_follows_when_there_is_space(
    agent_server: ServerFactory, small_disk: SmallDisk
) -> None:
    server = await agent_server([{"text": "answer " * 20_000, "loop": True}])
    disk = small_disk("server/notebooks", 4)
    kernel = await server.start_kernel("full.ipynb")
    await run_turn(server, "one", kernel=kernel, where="sandbox")
    sidecar = disk / "full.agent.json"
    before = await until_turns(sidecar, 1)
    ballast = await asyncio.to_thread(fill, disk, leave=64 * 1024)

    second = await run_turn(server, "two", kernel=kernel, where="sandbox")
    await asyncio.sleep(1.5)
    assert sidecar.read_bytes() == before
    assert not list(disk.glob(".*.tmp")), "something half-written was left"
    async with server.client() as client:
        assert len((await client.get(f"agent/v1/sessions/{second['session']}/items")).json()["turns"]) == 2
    assert "full.ipynb" in server.log.read_text()

    ballast.unlink()
    await run_turn(server, "three", kernel=kernel, where="sandbox")
    await until_turns(sidecar, 3)


async def until_turns(sidecar: Path, turns: int) -> bytes:
    for _ in range(600):
        if sidecar.exists() and len(parse(body := sidecar.read_bytes()).turns) == turns:
            json.loads(body)
            return body
        await asyncio.sleep(0.1)
    pytest.fail(f"{sidecar.name} does not hold {turns} turns")

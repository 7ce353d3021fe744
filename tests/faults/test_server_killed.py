"""Tests a server that is killed during a turn and restarted on the same data."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.jupyter_ext.conftest import ServerFactory
from tests.processes import descendants, survivors
from tests.server import follow, followed, start_turn, text_of, wait_for_event

ENDLESS = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
SCRIPT = [
    {"when": "work", "text": "First I compute.", "calls": [{"name": "python", "arguments": {"code": ENDLESS}}]},
    {"when": "talk", "text": "word " * 2000, "deltas": 2000, "delay": 0.02},
    {"text": "All right.", "loop": True},
]


async def test_a_turn_of_a_killed_server_is_found_interrupted_and_its_session_goes_on(
    agent_server: ServerFactory,
) -> None:
    server = await agent_server(SCRIPT)
    async with server.client() as client:
        started = await start_turn(client, "work")
        await wait_for_event(client, started["turn"], "call.output")
        family = descendants(server.pid)
        await server.kill()
    assert await survivors(family, 10) == [], "the sandbox outlived its server"
    await server.start()

    async with server.client() as client:
        turn = (await client.get(f"agent/v1/turns/{started['turn']}")).json()
        assert (turn["state"], turn["running"]) == ("interrupted", False)
        items = (await client.get(f"agent/v1/sessions/{started['session']}/items")).json()["items"]
        assert [item["seq"] for item in items] == list(range(1, len(items) + 1))
        call = next(item["message"]["tool_calls"][0]["id"] for item in items if item["message"].get("tool_calls"))
        assert items[-1]["message"]["tool_call_id"] == call
        assert items[-1]["message"]["status"] == "interrupted"

        again = await start_turn(client, "go on", session=started["session"])
        events = await followed(client, again["turn"])
        assert events[-1]["data"]["state"] == "committed"
        assert text_of(events) == "All right."


async def test_a_client_that_comes_back_after_the_kill_is_told_how_the_turn_ended(agent_server: ServerFactory) -> None:
    server = await agent_server(SCRIPT)
    seen = []
    async with server.client() as client:
        started = await start_turn(client, "work")
        async for event in follow(client, started["turn"]):
            seen.append(event)
            if event["type"] == "call.output":
                break
        await server.kill()
    await server.start()

    async with server.client() as client:
        rest = [event async for event in follow(client, started["turn"], last_event_id=seen[-1]["seq"])]
        assert [event["seq"] for event in rest] == list(range(seen[-1]["seq"] + 1, rest[-1]["seq"] + 1))
        assert rest[-1]["type"] == "turn.finished"
        assert rest[-1]["data"]["state"] == "interrupted"

        replayed = await followed(client, started["turn"])
        assert text_of(replayed) == text_of(seen)
        assert [event["type"] for event in replayed][-2:] == ["call.finished", "turn.finished"]
        assert replayed[-2]["data"]["status"] == "interrupted"


async def test_a_server_restarted_beside_another_leaves_the_other_ones_turn_alone(
    agent_server: ServerFactory, tmp_path: Path
) -> None:
    """Two roots, one store, a notebook of the same name in both."""
    store = tmp_path / "store"
    one = await agent_server(SCRIPT, "one", data_dir=store)
    two = await agent_server(SCRIPT, "two", data_dir=store)
    kernels = [await server.start_kernel("Untitled.ipynb") for server in (one, two)]
    async with one.client() as client, two.client() as neighbour:
        running = await start_turn(client, "talk", kernel=kernels[0], where="sandbox")
        killed = await start_turn(neighbour, "talk", kernel=kernels[1], where="sandbox")
        assert running["notebook"] == killed["notebook"] == "Untitled.ipynb"
        assert running["session"] != killed["session"]
        for caller, started in ((client, running), (neighbour, killed)):
            await wait_for_event(caller, started["turn"], "text.delta")
        await two.kill()
        await two.start()

    async with one.client() as client, two.client() as neighbour:
        assert (await neighbour.get(f"agent/v1/turns/{killed['turn']}")).json()["state"] == "interrupted"
        assert (await neighbour.get(f"agent/v1/turns/{running['turn']}")).json()["state"] == "open"
        await asyncio.sleep(1)
        await wait_for_event(client, running["turn"], "text.delta", after=20)
        assert (await client.get(f"agent/v1/turns/{running['turn']}")).json()["running"]

        bound = (await neighbour.get("agent/v1/binding", params={"path": "Untitled.ipynb"})).json()["session"]
        assert bound["id"] == killed["session"]
        again = await start_turn(neighbour, "go on", session=killed["session"])
        assert (await followed(neighbour, again["turn"]))[-1]["data"]["state"] == "committed"

        ended = (await client.post(f"agent/v1/turns/{running['turn']}/cancel", json={})).json()
        assert ended["state"] == "cancelled"
        again = await start_turn(client, "go on", kernel=kernels[0], where="sandbox")
        assert again["session"] == running["session"]
        assert (await followed(client, again["turn"]))[-1]["data"]["state"] == "committed"


async def test_a_session_that_another_server_uses_waits_for_it(agent_server: ServerFactory, tmp_path: Path) -> None:
    store = tmp_path / "store"
    one = await agent_server(SCRIPT, "one", data_dir=store)
    two = await agent_server(SCRIPT, "two", data_dir=store)
    async with one.client() as client, two.client() as neighbour:
        running = await start_turn(client, "talk", session="shared")
        await wait_for_event(client, running["turn"], "text.delta")
        refused = await neighbour.post("agent/v1/turns", json={"prompt": "me", "session": "shared", "queue": False})
        assert refused.status_code == 409
        assert refused.json()["error"]["code"] == "session_busy"
        waiting = await start_turn(neighbour, "me too", session="shared")
        await wait_for_event(neighbour, waiting["turn"], "queued")
        await client.post(f"agent/v1/turns/{running['turn']}/cancel", json={})
        events = await asyncio.wait_for(followed(neighbour, waiting["turn"]), 60)
        assert events[-1]["data"]["state"] == "committed"
        turns = (await neighbour.get("agent/v1/sessions/shared/items")).json()["turns"]
        assert [turn["state"] for turn in turns] == ["cancelled", "committed"]

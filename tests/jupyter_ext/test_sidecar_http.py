"""Tests a colleague's conversation beside a notebook: it is shown, imported as somebody else's, and what is saved
there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import httpx
import pytest

from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, followed, start_turn
from tests.waiting import until

PLACE = {"path": "a.ipynb"}
BESIDE = "agent/v1/beside"
CALL = {"calls": [{"name": "python", "arguments": {"code": "1"}}], "when": "live"}
SCRIPT = [CALL, {"text": "hi", "loop": True}]


async def until_exists(path: Path) -> None:
    await until(path.exists, 20)


async def run_turn(server: AgentServer, client: httpx.AsyncClient, prompt: str) -> str:
    started = await start_turn(client, prompt, kernel=await server.start_kernel("a.ipynb"))
    await followed(client, started["turn"])
    return str(started["session"])


async def moved(agent_server: ServerFactory) -> AgentServer:
    """A server with a notebook and the sidecar that another server wrote."""
    there = await agent_server(SCRIPT, name="there")
    async with there.client() as client:
        await run_turn(there, client, "their secret plan")
        await until_exists(there.root / "a.agent.json")
    here = await agent_server(SCRIPT, name="here")
    for name in ("a.ipynb", "a.agent.json"):
        shutil.copy(there.root / name, here.root / name)
    return here


async def test_what_would_come_in_is_shown_and_then_exactly_that_comes_in(agent_server: ServerFactory) -> None:
    here = await moved(agent_server)
    file = here.root / "a.agent.json"
    async with here.client() as client:
        own = (await client.post("agent/v1/sessions", json={"title": "mine", "bind": False})).json()["id"]
        seen = (await client.get(BESIDE, params=PLACE)).json()
        arrival = seen["arrival"]
        assert (seen["kind"], seen["name"], seen["problem"]) == ("foreign", "a.agent.json", "")
        assert (arrival["turns"], arrival["begins"], arrival["models"]) == (1, "their secret plan", ["scripted"])
        assert seen["saved"] == file.stat().st_mtime
        assert seen["size"] == file.stat().st_size
        assert arrival["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
        assert (await client.get("agent/v1/binding", params=PLACE)).json()["session"] is None

        wrong = await client.post(BESIDE, params=PLACE, json={"sha256": "0" * 64})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (409, "conflict")
        come = await client.post(BESIDE, params=PLACE, json={"sha256": arrival["sha256"]})
        assert come.status_code == 201
        assert (await client.get("agent/v1/binding", params=PLACE)).json()["session"]["id"] == come.json()["id"]
        after = (await client.get(BESIDE, params=PLACE)).json()
        assert (after["kind"], after["arrival"], after["told"]) == ("own", None, "")
        again = await client.post(BESIDE, params=PLACE, json={"sha256": arrival["sha256"]})
        assert again.status_code == 409
        listed = {one["id"] for one in (await client.get("agent/v1/sessions")).json()["sessions"]}
        assert listed == {own, come.json()["id"]}


@pytest.mark.parametrize("forked", [False, True])
async def test_after_words_of_a_stranger_live_code_asks_although_it_was_allowed(
    agent_server: ServerFactory, *, forked: bool
) -> None:
    here = await moved(agent_server)
    async with here.client() as client:
        arrival = (await client.get(BESIDE, params=PLACE)).json()["arrival"]
        session = (await client.post(BESIDE, params=PLACE, json={"sha256": arrival["sha256"]})).json()["id"]
        if forked:
            patched = await client.patch(f"agent/v1/sessions/{session}", json={"metadata": {}, "context": {}})
            assert patched.json()["imported"]["sha256"] == arrival["sha256"]
            fork = (await client.post(f"agent/v1/sessions/{session}/fork", json={})).json()
            assert fork["imported"].keys() == {"id", "revision"}
            session = fork["id"]
        kernel = await here.start_kernel("a.ipynb")
        started = await start_turn(client, "live", kernel=kernel, where="live", answers=["*"], session=session)
        assert started["session"] == session
        async with client.stream("GET", f"agent/v1/turns/{started['turn']}/events") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data:") and '"approval.required"' in line:
                    break
        asked = json.loads(line.removeprefix("data:"))["data"]
        assert "imported" in asked["again"]
        await client.post(f"agent/v1/turns/{started['turn']}/cancel", json={})


async def test_what_can_not_be_read_is_left_as_it_is_and_says_so(agent_server: ServerFactory) -> None:
    here = await agent_server(SCRIPT)
    (here.root / "a.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    async with here.client() as client:
        nothing = (await client.get(BESIDE, params=PLACE)).json()
        assert (nothing["kind"], nothing["saved"], nothing["arrival"]) == ("nothing", None, None)
        (here.root / "a.agent.json").write_text("{")
        seen = (await client.get(BESIDE, params=PLACE)).json()
        assert (seen["kind"], seen["arrival"]) == ("unreadable", None)
        assert "cannot read a conversation from" in seen["told"]
        refused = await client.post(BESIDE, params=PLACE, json={"sha256": hashlib.sha256(b"{").hexdigest()})
        assert refused.status_code in (400, 409)
        assert (await client.get(BESIDE)).status_code == 400
        assert (await client.get(BESIDE, params={"path": "../../etc/passwd"})).status_code == 400


async def test_a_server_in_the_mode_replay_begins_no_turn_and_makes_no_session(agent_server: ServerFactory) -> None:
    async with (await agent_server(SCRIPT, env={"AGENT_KERNEL_MODE": "replay"})).client() as client:
        reply = await client.post("agent/v1/turns", json={"prompt": "hello"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "forbidden")
        assert "stored answers" in reply.json()["error"]["message"]
        assert (await client.get("agent/v1/sessions")).json()["sessions"] == []

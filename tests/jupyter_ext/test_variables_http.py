"""Tests the variables of a session's sandbox over HTTP: listed, copied, restored, and what remains when the session is
deleted.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent_kernel.tools.code.rebuild_variables import ELSEWHERE
from tests.jupyter_ext.conftest import ServerFactory
from tests.scripted import call_when
from tests.server import followed, start_turn

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


SCRIPT = [
    call_when("compute", "python", code="monthly = {'jan': [1, 2.5]}\nopen('monthly.csv', 'w').write('x')"),
    call_when("crash", "python", code="import os\nos._exit(3)"),
    {"text": "done", "loop": True},
]


def directories(work: Path) -> list[Path]:
    return [path for path in work.iterdir() if path.is_dir()]


async def test_variables_are_listed_taken_and_made_again(agent_server: ServerFactory) -> None:
    server = await agent_server(SCRIPT)
    async with server.client() as client:
        done = await start_turn(client, "compute", where="sandbox")
        await followed(client, done["turn"])
        here = f"agent/v1/sessions/{done['session']}"
        listed = (await client.get(f"{here}/variables")).json()
        assert listed == {"variables": [{"name": "monthly", "type": "dict", "shape": [1]}], "lost": ""}
        taken = await client.get(f"{here}/variables/monthly")
        assert taken.headers["X-Variable-Encoding"] == "json"
        assert taken.headers["Content-Type"] == "application/octet-stream"
        assert taken.json() == {"jan": [1, 2.5]}
        missing = await client.get(f"{here}/variables/yearly")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")

        crash = await start_turn(client, "crash", where="sandbox", session=done["session"])
        await followed(client, crash["turn"])
        gone = (await client.get(f"{here}/variables")).json()
        assert gone["variables"] == []
        assert "exit code 3" in gone["lost"]

        told = await start_turn(client, "and now?", where="sandbox", session=done["session"])
        events = await followed(client, told["turn"])
        assert any(event["type"] == "state.lost" and "exit code 3" in event["data"]["reason"] for event in events)

        look = (await client.post(f"{here}/rebuild", json={"dry_run": True})).json()
        assert [piece["effects"][0]["kind"] for piece in look["pieces"]] == ["writes"]
        assert (look["ran"], look["status"]) == (0, "shown")
        assert (await client.get(f"{here}/variables")).json()["variables"] == []
        rebuilt = (await client.post(f"{here}/rebuild", json={})).json()
        assert (rebuilt["ran"], rebuilt["status"], rebuilt["error"]) == (1, "success", "")
        assert (await client.get(f"{here}/variables/monthly")).json() == {"jan": [1, 2.5]}

        work = next(server.directory.rglob("work"))
        assert len(directories(work)) == 1
        await client.delete(here)
        assert list(work.iterdir()) == []


async def test_a_copy_of_a_conversation_says_that_it_has_no_variables_until_code_runs(
    agent_server: ServerFactory,
) -> None:
    server = await agent_server(SCRIPT)
    async with server.client() as client:
        done = await start_turn(client, "compute", where="sandbox")
        await followed(client, done["turn"])
        copy = (await client.post(f"agent/v1/sessions/{done['session']}/fork", json={})).json()["id"]
        here = f"agent/v1/sessions/{copy}"
        assert (await client.get(f"{here}/variables")).json() == {"variables": [], "lost": ELSEWHERE}
        lost = (await client.get(f"{here}/meanwhile?since=0")).json()["lost"]
        assert (lost["sandbox"], lost["pieces"]) == (ELSEWHERE, 1)

        asked = await start_turn(client, "and now?", where="sandbox", session=copy)
        events = await followed(client, asked["turn"])
        assert [event["data"] for event in events if event["type"] == "state.lost"] == [{"reason": ELSEWHERE}]
        items = (await client.get(f"{here}/items")).json()["items"]
        assert any(ELSEWHERE in str(item["message"]) for item in items if item["message"].get("hidden"))

        rebuilt = (await client.post(f"{here}/rebuild", json={})).json()
        assert (rebuilt["ran"], rebuilt["status"]) == (1, "success")
        again = await start_turn(client, "and now?", where="sandbox", session=copy)
        assert not [event for event in await followed(client, again["turn"]) if event["type"] == "state.lost"]

"""Tests a kernel that dies while the agent's code runs in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, Json, followed, wait_for_event

ENDLESS = "import time\nprint('begun', flush=True)\nlost = 1\ntime.sleep(600)"
SCRIPT = [
    {"when": "work", "text": "I compute.", "calls": [{"name": "python", "arguments": {"code": ENDLESS}}]},
    {"text": "All right.", "loop": True},
]


async def only_turn(server: AgentServer, session: str) -> str:
    async with server.client() as client:
        for _ in range(300):
            turns = (await client.get(f"agent/v1/sessions/{session}/items")).json()["turns"]
            if turns:
                return str(turns[-1]["id"])
            await asyncio.sleep(0.1)
    raise AssertionError("no turn was begun")


async def session_of(server: AgentServer, notebook: str) -> str:
    async with server.client() as client:
        return str((await client.get("agent/v1/binding", params={"path": notebook})).json()["session"]["id"])


async def test_a_turn_ends_with_the_kernel_its_code_ran_in_and_the_conversation_goes_on(
    agent_server: ServerFactory,
) -> None:
    server = await agent_server(SCRIPT)
    kernel = await server.start_kernel("nb.ipynb")
    said = await server.run_in_kernel(kernel, "%agent allow live\nimport os\nprint(os.getpid())")
    pid = int(said.split()[-1])
    session = await session_of(server, "nb.ipynb")

    cell = asyncio.create_task(server.run_in_kernel(kernel, "%%agent\nwork"))
    turn = await only_turn(server, session)
    async with server.client() as client:
        await wait_for_event(client, turn, "call.output")
        os.kill(pid, signal.SIGKILL)
        events: list[Json] = await asyncio.wait_for(followed(client, turn), 60)
        assert events[-1]["data"]["state"] == "cancelled"
        assert "kernel" in events[-1]["data"]["reason"]
        items = (await client.get(f"agent/v1/sessions/{session}/items")).json()["items"]
        assert items[-1]["message"]["role"] == "tool"
        assert items[-1]["message"]["status"] == "interrupted"
    cell.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await cell

    await server.run_in_kernel(kernel, "%%agent --in sandbox\ngo on")
    assert await session_of(server, "nb.ipynb") == session
    async with server.client() as client:
        body = (await client.get(f"agent/v1/sessions/{session}/items")).json()
        assert [one["state"] for one in body["turns"]] == ["cancelled", "committed"]
        assert body["items"][-1]["message"]["content"] == "All right."

"""Tests the settings of the sandbox on a whole server: what results, ``health`` and the user see of them."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, followed, start_turn

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
LOOK = "import os\nos.getcwd(), os.environ.get('MINE')"
SCRIPT: list[dict[str, Any]] = [
    {"when": "look", "calls": [{"name": "python", "arguments": {"code": LOOK}}], "loop": True},
    {"when": "miss", "calls": [{"name": "python", "arguments": {"code": "open('/srv/there')"}}], "loop": True},
    {"text": "Done.", "loop": True},
]


async def events(server: AgentServer, prompt: str, **body: Any) -> list[dict[str, Any]]:
    async with server.client() as client:
        started = await start_turn(client, prompt, where="sandbox", max_tool_rounds=1, **body)
        return await asyncio.wait_for(followed(client, started["turn"]), 180)


def of(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event["data"] for event in found if event["type"] == kind]


async def test_a_notebooks_turn_runs_with_the_kernels_interpreter_and_says_so(agent_server: ServerFactory) -> None:
    server = await agent_server(SCRIPT, traits={"sandbox_env": "MINE=1", "tools": "python"})
    kernel = await server.start_kernel("nb.ipynb")
    (finished,) = of(await events(server, "look", kernel=kernel), "call.finished")
    assert "'1'" in finished["text"]
    assert finished["details"]["interpreter"].endswith("(the kernel's)")
    (missed,) = of(await events(server, "miss", kernel=kernel), "call.finished")
    assert missed["details"]["denied"] == "/srv/there"
    assert "A person can allow it" in missed["text"]


async def test_a_sandbox_that_is_off_is_told_by_results_notices_and_health(agent_server: ServerFactory) -> None:
    server = await agent_server(SCRIPT, traits={"sandbox": "off", "tools": "python"})
    found = await events(server, "look", session="off")
    (finished,) = of(found, "call.finished")
    assert finished["status"] == "success"
    assert "plain process" in finished["details"]["less"]
    assert ["plain process" in notice["text"] for notice in of(found, "notice")] == [True]
    async with server.client() as client:
        health = (await client.get("agent/v1/health")).json()
    assert "plain process" in health["sandbox"]["isolation"]["detail"]
    assert not health["sandbox"]["isolation"]["active"]

"""Tests that the model's priority is lowered while a kernel computes for its user, but not while a cell waits for one
of our answers.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from agent_kernel.core.settings import Settings
from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, followed, start_turn
from tests.waiting import until

pytestmark = [
    pytest.mark.model("tiny"),
    pytest.mark.skipif(
        sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="there is no core to give way with"
    ),
]
COMPUTE = "import time; time.sleep(6)"


def worker_of(server: AgentServer) -> int:
    """Return the pid of the model worker."""
    found = [pid for pid in server.processes() if f"--parent\0{server.pid}\0" in command(pid)]
    (pid,) = found
    return pid


def command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def cores(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            found |= os.sched_getaffinity(int(task.name))
    return found


async def test_a_busy_kernel_gets_a_core_and_a_waiting_cell_takes_none(agent_server: ServerFactory) -> None:
    traits = {"engine": "local", "model": "tiny", "cache_dir": str(Settings.from_env().cache_dir)}
    server = await agent_server(traits=traits)
    mine = os.sched_getaffinity(0)
    kernel = await server.start_kernel("train.ipynb")
    async with server.client() as user:
        await followed(user, (await start_turn(user, "Hi"))["turn"])
        pid = worker_of(server)
        async with server.kernel(kernel) as client:
            client.execute(COMPUTE)
            await until(lambda: len(cores(pid)) == len(mine) - 1)
            await until(lambda: cores(pid) == mine)
            client.execute("get_ipython().run_cell_magic('agent', '', 'Tell a very long story about a fox.')")
            turn = await running_turn(user, kernel)
            for _ in range(25):
                assert cores(pid) == mine
                await asyncio.sleep(0.1)
            await user.post(f"agent/v1/turns/{turn}/cancel", json={})


async def running_turn(user: httpx.AsyncClient, kernel: str) -> str:
    """Return the id of the turn that a cell of this kernel waits for."""
    for _ in range(300):
        session = (await user.get(f"agent/v1/binding?kernel={kernel}")).json()["session"]
        if session is not None:
            turns = (await user.get(f"agent/v1/sessions/{session['id']}/items?limit=0")).json()["turns"]
            if found := [turn["id"] for turn in turns if turn["state"] == "open"]:
                return str(found[0])
        await asyncio.sleep(0.1)
    raise AssertionError("the cell began no turn")

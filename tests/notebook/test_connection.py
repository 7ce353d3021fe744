"""Tests a broken connection between kernel and server."""

from __future__ import annotations

import asyncio
import re

from tests.notebook.notebook import Notebook
from tests.relay import Relay

SCRIPT = [
    {"when": "count for me", "text": " ".join(map(str, range(400))), "deltas": 400, "delay": 0.01},
    {"when": "and then silence", "text": "word " * 3000, "deltas": 3000, "delay": 0.02},
]
THROUGH = """
import os
from agent_kernel.notebook.server_client import server_of_this_kernel
os.environ["AGENT_KERNEL_TOKEN"] = server_of_this_kernel().token
os.environ["AGENT_KERNEL_URL"] = "http://127.0.0.1:{port}/"
server_of_this_kernel.cache_clear()
%unload_ext agent_kernel
%load_ext agent_kernel
"""


async def test_a_cut_connection_is_taken_up_where_it_broke(fresh_notebook: Notebook) -> None:
    async with Relay(fresh_notebook.server.port) as way:
        assert (await fresh_notebook.run(THROUGH.format(port=way.port))).status == "ok"
        running = asyncio.create_task(fresh_notebook.run("%%agent\ncount for me"))
        await fresh_notebook.until_shown("30 31 32")
        before = way.connections
        way.cut()
        ran = await running
    assert way.connections > before
    assert ran.status == "ok"
    assert ran.text.split() == [str(number) for number in range(400)], "nothing was lost, nothing came twice"


async def test_a_server_that_is_gone_ends_the_cell_in_one_line_with_the_answer_so_far(fresh_notebook: Notebook) -> None:
    async with Relay(fresh_notebook.server.port) as way:
        await fresh_notebook.run(THROUGH.format(port=way.port))
        running = asyncio.create_task(fresh_notebook.run("%%agent\nand then silence"))
        await fresh_notebook.until_shown("word word")
        await way.close()
        ran = await running
    assert ran.status == "error"
    assert re.match(r"Agent: The Jupyter server does not answer \(.*\)\. .*%agent status", ran.error)
    assert "\n" not in ran.error
    assert ran.text.startswith("word word")
    assert ran.text.endswith("*(cut short)*")
    assert (await fresh_notebook.run("1 + 1")).plain == "2"

"""Tests that a user edits the code of a cell's turn: the cell waits for the panel, and the kernel runs the
edited code.
"""

from __future__ import annotations

import asyncio

from tests.notebook.notebook import Notebook
from tests.server import AgentServer

SCRIPT = [
    {"when": "count", "calls": [{"name": "python", "arguments": {"code": "total = 1\nprint(total)"}}]},
    {"when": "count", "text": "Counted."},
    {"text": "ok", "loop": True},
]


async def test_the_kernel_runs_the_code_that_was_written_in_the_panel(notebook: Notebook, server: AgentServer) -> None:
    running = asyncio.create_task(notebook.run("%%agent --in live --ask\ncount", ["e"]))
    await asyncio.sleep(0)
    await notebook.until_shown("waiting for you: change the code")
    async with server.client() as client:
        [question] = (await client.get("agent/v1/agent/approvals")).json()["approvals"]
        answer = {"decision": "approve", "edited": "total = 42\nprint(total)", "shown": question["shown"]}
        (await client.post(f"agent/v1/agent/approvals/{question['approval']}", json=answer)).raise_for_status()
    ran = await running
    assert "[e]dit in the panel" in ran.asked[0]
    assert "total = 42" in ran.cards[0]
    assert ran.text == "Counted."
    assert (await notebook.run("print(total)")).printed.strip() == "42"
    result = next(message for message in await notebook.messages() if message["role"] == "tool")
    assert "total = 42" in result["content"]

"""Tests a page that runs calls for a notebook's kernel: it lists the calls it can run, gets offers, claims them, and
sends results.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.jupyter_ext.api.mcp.test_endpoint import client as mcp_client
from tests.page import Page, page
from tests.scripted import call_when
from tests.server import AgentServer, Json, start_turn

TOOLS = ["live_document", "insert_cell", "edit_cell", "delete_cell", "move_cell", "run_cells"]


SCRIPT = [
    call_when("change it", "edit_cell", cell="one", find="x = 1", replace="x = 2"),
    {"when": "change it", "text": "Changed."},
    call_when("nobody is there", "insert_cell", source="x"),
    {"when": "nobody is there", "text": "Then not."},
    call_when("from elsewhere", "insert_cell", source="x"),
    {"when": "from elsewhere", "text": "Then not."},
    {"text": "Nothing.", "loop": True},
]
TRAITS = {"tools": "python,notebook"}


@pytest.fixture(scope="module")
def kernel(server: AgentServer) -> str:
    return asyncio.run(server.start_kernel("open.ipynb"))


async def names(client: httpx.AsyncClient, **body: Any) -> set[str]:
    reply = await client.post("agent/v1/tools", json=body)
    reply.raise_for_status()
    return {tool["name"] for tool in reply.json()["tools"]}


async def wait_for_offer(mine: Page, name: str) -> Json:
    while True:
        event = await mine.until("call.offered")
        if event["data"]["name"] == name:
            found: Json = event["data"]
            return found


class Claimed:
    """A call that this test has claimed, as a page does."""

    def __init__(self, client: httpx.AsyncClient, turn: str, call: str) -> None:
        self._client = client
        self._path = f"agent/v1/turns/{turn}/claims"
        self._call = call
        self._token = ""

    async def claim(self, client: str = "page:test") -> httpx.Response:
        reply = await self._client.post(self._path, json={"call": self._call, "client": client})
        self._token = self._token or reply.json().get("token", "")
        return reply

    async def decline(self, why: str) -> None:
        body = {"call": self._call, "client": "page:test", "declined": why}
        (await self._client.post(self._path, json=body)).raise_for_status()

    async def finish(self, **details: Any) -> httpx.Response:
        body = {"action": "finish", "token": self._token, "status": "success", "text": "", "details": details}
        return await self._client.post(f"{self._path}/{self._call}", json=body)


async def test_a_change_goes_through_the_page_and_is_kept_with_its_turn(
    api: httpx.AsyncClient, mine: Page, kernel: str
) -> None:
    assert "edit_cell" not in await names(api, kernel=kernel)
    await mine.ask("serve", kernel=kernel, tools=TOOLS)
    await mine.ask("watch", kernel=kernel)
    await mine.until("watching", kernel=kernel)
    assert "edit_cell" in await names(api, kernel=kernel)
    started = await start_turn(api, "change it", kernel=kernel, where="live", answers=["*"])
    turn = started["turn"]
    assert (await mine.until("turn.opened"))["turn"] == turn
    await mine.ask("follow", turn=turn)

    look = await wait_for_offer(mine, "live_document")
    first = Claimed(api, turn, look["call"])
    assert (await first.claim()).status_code == 200
    assert (await Claimed(api, turn, look["call"]).claim("page:other")).status_code == 409, "one claim wins"
    cells = [{"id": "one", "cell_type": "code", "source": "x = 1 # not saved"}]
    assert (await first.finish(cells="x" * (9 << 20))).status_code == 400, "facts have a size"
    (await first.finish(path="open.ipynb", cells=cells)).raise_for_status()

    asked = (await mine.until("approval.required"))["data"]
    assert asked["code"] == "cell 1 (one)\n@@ -1 +1 @@\n-x = 1 # not saved\n+x = 2 # not saved"
    answer = {"decision": "approve", "shown": asked["shown"]}
    (await api.post(f"agent/v1/agent/approvals/{asked['approval']}", json=answer)).raise_for_status()
    change = await wait_for_offer(mine, "edit_cell")
    assert (change["arguments"]["before"], change["arguments"]["after"]) == (
        cells[0]["source"],
        "x = 2 # not saved",
    )
    second = Claimed(api, turn, change["call"])
    await second.claim()
    (await second.finish(cell="one", index=0, notebook="open.ipynb")).raise_for_status()

    told = await mine.turn(turn)
    [done] = [event["data"] for event in told if event["type"] == "call.finished"]
    assert (done["status"], done["details"]["change"]["after"]) == ("success", "x = 2 # not saved")
    kept = (await api.get(f"agent/v1/sessions/{started['session']}/turns")).json()["turns"][-1]["events"]
    [stored] = [event["data"] for event in kept if event["type"] == "call.finished"]
    assert stored["details"] == done["details"], "an undo works from what is stored"


async def test_a_turn_of_an_mcp_client_reaches_the_page_of_its_notebook(server: AgentServer, kernel: str) -> None:
    async with server.client() as client, page(server) as mine, mcp_client(server) as mcp:
        await mine.ask("serve", kernel=kernel, tools=TOOLS)
        await mine.ask("watch", kernel=kernel)
        await mine.until("watching", kernel=kernel)
        arguments = {"prompt": "from elsewhere", "notebook": "open.ipynb"}
        asking = asyncio.create_task(mcp.call_tool("agent", arguments))
        turn = (await mine.until("turn.opened"))["turn"]
        await mine.ask("follow", turn=turn)
        look = await wait_for_offer(mine, "live_document")
        await Claimed(client, turn, look["call"]).decline("the notebook was closed")
        answer = await asking
    assert answer.structured_content["calls"] == [{"name": "insert_cell", "status": "error"}]


async def test_a_page_that_can_not_says_so_and_the_model_hears_why(
    api: httpx.AsyncClient, mine: Page, kernel: str
) -> None:
    await mine.ask("serve", kernel=kernel, tools=TOOLS)
    await mine.ask("watch", kernel=kernel)
    await mine.until("watching", kernel=kernel)
    turn = (await start_turn(api, "nobody is there", kernel=kernel, where="live", answers=["*"]))["turn"]
    await mine.ask("follow", turn=turn)
    look = await wait_for_offer(mine, "live_document")
    await Claimed(api, turn, look["call"]).decline("the notebook was closed")
    [done] = [event["data"] for event in await mine.turn(turn) if event["type"] == "call.finished"]
    assert done["status"] == "error"
    assert "page:test declined: the notebook was closed" in done["text"]


async def test_a_cells_own_turn_changes_cells_and_runs_none_in_its_busy_kernel(
    server: AgentServer, kernel: str
) -> None:
    async with page(server) as mine, server.kernel_client(await server.kernel_token(kernel)) as magic:
        await mine.ask("serve", kernel=kernel, tools=TOOLS)
        await mine.ask("ping")
        await mine.until("pong")
        found = await names(magic, kernel=kernel, client_tools=["python", "run_cell"])
        assert {"insert_cell", "edit_cell", "run_cell"} <= found
        assert "run_cells" not in found
        await mine.leave()
        assert "insert_cell" not in await names(magic, kernel=kernel, client_tools=["python", "run_cell"])

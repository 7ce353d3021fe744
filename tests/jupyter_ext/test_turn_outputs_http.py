"""Tests a turn that ended while no page showed it: the outputs of its cell, and the card that reports it."""

from __future__ import annotations

import time
from typing import Any

import nbformat

from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, Json, followed, start_turn, wait_for_event

TURN_MIME = "application/vnd.agent-kernel.turn+json"


def call(code: str, **told: Any) -> Json:
    return {"calls": [{"name": "python", "arguments": {"code": code}}], **told}


SCRIPT: list[Json] = [
    {"when": "compute", "reasoning": "I add.", "text": "Let me see. ", **call("print(1 + 1)")},
    {"when": "compute", "text": "It is **2**. <script>alert(1)</script>"},
    {"when": "wait", **call("1")},
    {"when": "hang", "text": "It begins", "fault": "hang"},
    {"when": "fail", "fault": "no luck"},
    {"text": "Hello.", "loop": True},
]


def data_of(outputs: list[Json], mime: str) -> list[Any]:
    return [output["data"][mime] for output in outputs if mime in output["data"]]


async def outputs_of(client: Any, turn: str) -> list[Json]:
    reply = await client.get(f"agent/v1/turns/{turn}/outputs")
    assert reply.status_code == 200, reply.text
    outputs: list[Json] = reply.json()["outputs"]
    cell = nbformat.v4.new_code_cell("%%agent\ncompute", outputs=outputs)
    nbformat.validate(nbformat.v4.new_notebook(cells=[cell]))
    return outputs


async def test_a_stored_turn_has_the_outputs_that_its_cell_would_have(agent_server: ServerFactory) -> None:
    async with (await agent_server(SCRIPT)).client() as client:
        turn = (await start_turn(client, "compute", session="s", cell="c1", where="sandbox"))["turn"]
        await followed(client, turn)
        outputs = await outputs_of(client, turn)
        assert data_of(outputs, "text/markdown")[0].strip() == "Let me see."
        assert "<script" not in data_of(outputs, "text/markdown")[1]
        plain = "\n".join(data_of(outputs, "text/plain"))
        for words in ("I add.", "print(1 + 1)", "· done", "2", "It is"):
            assert words in plain
        assert all("Waiting" not in words for words in data_of(outputs, "text/plain"))
        [record] = data_of(outputs, TURN_MIME)
        assert (record["turn"], record["cell"], record["state"]) == (turn, "c1", "committed")
        failed = (await start_turn(client, "fail", session="f"))["turn"]
        await followed(client, failed)
        [record] = data_of(await outputs_of(client, failed), TURN_MIME)
        assert record["state"] == "failed"
        hangs = (await start_turn(client, "hang", session="h"))["turn"]
        await wait_for_event(client, hangs, "text.delta")
        refused = await client.get(f"agent/v1/turns/{hangs}/outputs")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
        await client.post(f"agent/v1/turns/{hangs}/cancel", json={})
        outputs = await outputs_of(client, hangs)
        assert "It begins *(cut short)*" in data_of(outputs, "text/markdown")[0]


async def test_the_outputs_are_those_that_the_magic_leaves(agent_server: ServerFactory) -> None:
    server = await agent_server(SCRIPT)
    kernel = await server.start_kernel("same.ipynb")
    left = await cell_outputs(server, kernel, "%%agent --in sandbox\ncompute")
    [record] = data_of(left, TURN_MIME)
    async with server.client() as client:
        made = await outputs_of(client, record["turn"])
    words = [[output["data"]["text/plain"].split(" · ")[0] for output in outputs] for outputs in (left, made)]
    assert words[0] == words[1]
    assert data_of(left, "text/markdown") == data_of(made, "text/markdown")


async def cell_outputs(server: AgentServer, kernel: str, code: str) -> list[Json]:
    """Return the outputs of a cell as a front end keeps them."""
    kept: dict[str, Json] = {}
    async with server.kernel(kernel) as client:

        def hear(message: Json) -> None:
            content = message["content"]
            if message["msg_type"] in ("display_data", "update_display_data"):
                kept[content["transient"]["display_id"]] = content

        reply = await client.execute_interactive(code, output_hook=hear, timeout=60)
        assert reply["content"]["status"] == "ok", reply
    return list(kept.values())


async def test_one_card_tells_what_was_missed(agent_server: ServerFactory) -> None:
    server = await agent_server(SCRIPT)
    kernel = await server.start_kernel("missed.ipynb")
    async with server.client() as client:
        started = await start_turn(client, "hello", kernel=kernel, cell="c1")
        await followed(client, started["turn"])
        session = started["session"]
        path = f"agent/v1/sessions/{session}/meanwhile?kernel={kernel}"
        told = (await client.get(path)).json()
        [ended] = told["turns"]
        assert (ended["turn"], ended["cell"], ended["state"], ended["prompt"]) == (
            *(started["turn"], "c1", "committed"),
            "hello",
        )
        assert told["lost"] == {"sandbox": "", "pieces": 0, "kernel": ""}
        assert (told["approvals"], told["problems"]) == ([], [])
        assert (await client.get(f"{path}&since={int(time.time()) + 5}")).json()["turns"] == []
        asking = await start_turn(client, "wait", kernel=kernel, where="live", answers=["*"])
        await wait_for_event(client, asking["turn"], "approval.required")
        told = (await client.get(path)).json()
        assert told["running"] == [asking["turn"]]
        [waits] = told["approvals"]
        assert (waits["turn"], waits["kind"], "code" in waits) == (asking["turn"], "python.live", False)
        await client.post(f"agent/v1/turns/{asking['turn']}/cancel", json={})
        (await client.post(f"api/kernels/{kernel}/restart")).raise_for_status()
        told = (await client.get(path)).json()
        assert told["lost"]["kernel"] == ""  # the turn was stopped before its code ran

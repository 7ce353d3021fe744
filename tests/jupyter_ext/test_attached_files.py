"""Tests that code opens an attached file wherever it runs: in the sandbox or in a draft of a kernel."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scripted import call_when
from tests.server import AgentServer, follow, start_turn

CODE = "import csv\nprint(sum(int(row['a']) for row in csv.DictReader(open('attached.csv'))))"
SCRIPT = [
    *[call_when("begin", "python", code="x = 1"), {"when": "begin", "text": "Done."}] * 2,
    *[call_when("sum of a", "python", code=CODE), {"when": "sum of a", "text": "Done."}] * 2,
    {"text": "Nothing.", "loop": True},
]
TRAITS: dict[str, Any] = {}


@pytest.mark.parametrize("where", ["sandbox", "draft"])
async def test_code_opens_an_attached_file(server: AgentServer, where: str) -> None:
    kernel = await server.start_kernel(f"{where}.ipynb")
    await server.run_in_kernel(kernel, "1")
    async with server.client() as client:
        file = {"file": ("attached.csv", b"a,b\n20,2\n22,4\n")}
        sent = await client.post("agent/v1/files", files=file, data={"purpose": "user_data"})
        options = {"kernel": kernel, "where": where, "answers": ["*"], "session": f"s-{where}"}
        begun = await start_turn(client, "begin", **options)  # a draft that exists already does not see the file
        assert [event async for event in follow(client, begun["turn"])]
        started = await start_turn(client, "What is the sum of a?", inputs=[sent.json()["id"]], **options)
        events = [event async for event in follow(client, started["turn"])]
    (finished,) = [event["data"] for event in events if event["type"] == "call.finished"]
    assert finished["status"] == "success", finished["text"]
    assert "42" in finished["text"]
    notices = [event["data"]["text"] for event in events if event["type"] == "notice"]
    assert ("Saved in the folder of the notebook, where code can read it: attached.csv." in notices) == (
        where == "draft"
    )

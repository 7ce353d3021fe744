"""Tests sessions as documents over HTTP: downloaded, previewed, imported, and cleared of tool results."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import Any

import httpx
import pytest

from agent_kernel.sandbox.host.chart_validation import PLOTLY
from jupyter_ext.api.http.json_body import MAX_BODY
from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, followed, start_turn
from tests.sessions.export.test_imported_charts import BAR, HOST, SENDS, body, document
from tests.waiting import until

SAID = {"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]}


async def run_turn(client: httpx.AsyncClient, **body: str) -> str:
    started = await start_turn(client, "hello", **body)
    await followed(client, started["turn"])
    return str(started["session"])


async def session_ids(client: httpx.AsyncClient) -> set[str]:
    return {session["id"] for session in (await client.get("agent/v1/sessions")).json()["sessions"]}


async def texts(client: httpx.AsyncClient, session: str) -> list[Any]:
    items = (await client.get(f"agent/v1/sessions/{session}/items")).json()["items"]
    return [item["message"]["content"] for item in items if not item["message"].get("hidden")]


async def test_a_session_is_downloaded_and_taken_in_under_an_id_of_its_own(api: httpx.AsyncClient) -> None:
    session = await run_turn(api)
    reply = await api.get(f"agent/v1/sessions/{session}/export")
    assert reply.headers["Content-Disposition"] == 'attachment; filename="session.json"'
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    seen = await api.post("agent/v1/sessions/import", params={"preview": 1}, content=reply.content)
    assert seen.json()["preview"]["begins"] == "hello"
    come = (await api.post("agent/v1/sessions/import", content=reply.content)).json()
    assert come["id"] != session
    assert come["preview"] == seen.json()["preview"]
    assert await texts(api, come["id"]) == await texts(api, session)


@pytest.mark.parametrize(
    ("format", "kind"),
    [("markdown", "text/markdown"), ("jsonl", "application/jsonl"), ("notebook", "application/x-ipynb+json")],
)
async def test_a_session_is_downloaded_in_other_formats(api: httpx.AsyncClient, format: str, kind: str) -> None:
    session = await run_turn(api)
    reply = await api.get(f"agent/v1/sessions/{session}/export", params={"format": format})
    assert reply.headers["Content-Type"].startswith(kind)
    assert b"hello" in reply.content
    wrong = await api.get(f"agent/v1/sessions/{session}/export", params={"format": "pdf"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_request")


async def test_a_document_that_is_malformed_or_too_large_is_refused_and_nothing_is_made(api: httpx.AsyncClient) -> None:
    before = await session_ids(api)
    bad = {"messages": [{"role": "root", "content": "x"}]}
    reply = await api.post("agent/v1/sessions/import", json=bad)
    assert reply.status_code == 400
    assert "messages[0].role" in reply.json()["error"]["message"]
    large = await api.post("agent/v1/sessions/import", content=b" " * (MAX_BODY + 1))
    assert large.status_code == 413
    assert await session_ids(api) == before


async def test_a_kernel_may_use_what_it_brought_in_and_its_notebook_goes_on_with_it(server: AgentServer) -> None:
    kernel = await server.start_kernel("a.ipynb")
    async with server.kernel_client(await server.kernel_token(kernel)) as client:
        come = (await client.post("agent/v1/sessions/import", params={"bind": 1}, json=SAID)).json()
        assert come["bound"] is True
        assert (await client.get("agent/v1/binding")).json()["session"]["id"] == come["id"]
        assert await texts(client, come["id"]) == ["hello", "hi"]


async def until_exists(server: AgentServer, name: str) -> None:
    await until((server.root / name).exists, 20)


async def test_a_conversation_from_elsewhere_beside_a_notebook_is_offered_and_taken_in(
    agent_server: ServerFactory,
) -> None:
    there = await agent_server(name="there")
    async with there.client() as client:
        await run_turn(client, kernel=await there.start_kernel("a.ipynb"))
        await until_exists(there, "a.agent.json")
    here = await agent_server(name="here")
    for name in ("a.ipynb", "a.agent.json"):
        shutil.copy(there.root / name, here.root / name)
    brought = (here.root / "a.agent.json").read_bytes()
    async with here.client() as client:
        place = {"path": "a.ipynb"}
        (note,) = (await client.get("agent/v1/binding", params=place)).json()["notes"]
        assert "Import the file" in note  # a client of HTTP has no %agent
        seen = await client.post("agent/v1/sessions/import", params={**place, "beside": 1, "preview": 1})
        assert seen.json()["preview"]["begins"] == "hello"
        come = (await client.post("agent/v1/sessions/import", params={**place, "beside": 1, "bind": 1})).json()
        assert (await client.get("agent/v1/binding", params=place)).json()["notes"] == []
        kernel = await here.start_kernel("a.ipynb")
        assert await run_turn(client, kernel=kernel) == come["id"]
        await until(lambda: (here.root / "a.agent.json").read_bytes() != brought, 20)
        assert json.loads((here.root / "a.agent.json").read_bytes())["agent_kernel"]["session"]["id"] == come["id"]
        (backup,) = (here.directory / "data" / "sidecar_backups").rglob("a.agent.json")
        assert backup.read_bytes() == brought
        assert not (here.root / "a.agent.conflict.json").exists()


async def test_a_chart_beside_a_notebook_that_would_ask_an_address_is_not_there_to_be_opened(
    agent_server: ServerFactory,
) -> None:
    """The panel offers each chart of a turn to the notebook, which draws it when the new cell runs."""
    here = await agent_server(name="here")
    for chart, shown in ((BAR, [PLOTLY]), (SENDS, [])):
        (here.root / "a.agent.json").write_bytes(await document(PLOTLY, body(chart)))
        async with here.client() as client:
            params: dict[str, Any] = {"path": "a.ipynb", "beside": 1, "bind": 1}
            reply = await client.post("agent/v1/sessions/import", params=params)
            assert reply.status_code == 201, reply.text
            (turn,) = (await client.get(f"agent/v1/sessions/{reply.json()['id']}/turns")).json()["turns"]
            finished = [event["data"] for event in turn["events"] if event["type"] == "call.finished"]
            assert [medium["mime"] for call in finished for medium in call["media"]] == shown
            assert HOST not in json.dumps(turn)


async def test_outputs_that_were_cleared_in_the_notebook_are_cleared_in_the_conversation(
    agent_server: ServerFactory,
) -> None:
    call = {"text": "", "calls": [{"name": "python", "arguments": {"code": "print('sec' + 'ret')"}}], "when": "tool"}
    server = await agent_server([call, {"text": "done", "loop": True}])
    async with server.client() as client:
        kernel = await server.start_kernel("a.ipynb")
        session = await run_turn(client, kernel=kernel)
        started = await start_turn(client, "tool", kernel=kernel, cell="c1", where="sandbox")
        events = await followed(client, started["turn"])
        assert events[-1]["data"]["state"] == "committed", events[-1]
        assert "secret" in json.dumps(await texts(client, session))
        await until_exists(server, "a.agent.json")
        await save(client, outputs=[{"output_type": "stream", "name": "stdout", "text": "secret"}])
        assert (await client.get("agent/v1/binding", params={"path": "a.ipynb"})).json()["notes"] == []
        await save(client, outputs=[])
        (note,) = (await client.get("agent/v1/binding", params={"path": "a.ipynb"})).json()["notes"]
        assert note.startswith("1 agent cell(s) of this notebook have no outputs"), note
        assert note.endswith('To remove that too, run the magic command "agent clear outputs" in a cell.'), note
        params = {"path": "a.ipynb"}
        cleared = await client.post(f"agent/v1/sessions/{session}/clear-outputs", params=params, json={})
        assert cleared.json() == {"cells": 1, "results": 1}
        assert "secret" not in json.dumps(await texts(client, session))
        assert (await client.get("agent/v1/binding", params={"path": "a.ipynb"})).json()["notes"] == []
        async with asyncio.timeout(20):
            # The document is read first: the backup takes its content when the document is replaced.
            while any(b"secret\\n" in path.read_bytes() for path in sorted(server.directory.rglob("a.agent.json*"))):
                await asyncio.sleep(0.05)


async def save(client: httpx.AsyncClient, outputs: list[Any]) -> None:
    cell: dict[str, Any] = {
        "id": "c1",
        "cell_type": "code",
        "source": "%%agent\ntool",
        "metadata": {},
        "outputs": outputs,
        "execution_count": 1 if outputs else None,
    }
    content = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}
    body = {"type": "notebook", "format": "json", "content": content}
    (await client.put("api/contents/a.ipynb", json=body)).raise_for_status()

"""Tests choosing the engine of a conversation over HTTP: by a user, by a notebook, and what a notebook may
not choose.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.engines.openai_api.wire_server import HELLO, WireServer, status
from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, followed, start_turn, text_of

FAR = "https://models.example.com/v1#big"


def traits(url: str) -> dict[str, Any]:
    servers = {"near": {"url": url, "model": "m", "api_key_env": "NEAR_KEY"}, "far": {"url": FAR.partition("#")[0]}}
    return {"engines": servers}


SCRIPT = [{"text": "own", "loop": True}]
TRAITS = traits("http://127.0.0.1:9/v1")


async def test_a_turn_can_name_its_engine_and_a_session_can_be_given_to_one(agent_server: ServerFactory) -> None:
    async with WireServer([HELLO]) as near:
        server = await agent_server(
            [{"text": "own", "loop": True}], traits=traits(near.url), env={"NEAR_KEY": "sk-near"}
        )
        async with server.client() as client:
            first = await start_turn(client, "x")
            named = await start_turn(client, "x", session=first["session"], model="near")
            events = await followed(client, named["turn"])
            again = await start_turn(client, "x", session=first["session"])
            assert text_of(await followed(client, again["turn"])) == "own"
            chosen = await client.put("agent/v1/engine", json={"model": "near", "session": first["session"]})
            assert (chosen.status_code, chosen.json()["engine"]["host"]) == (200, near.host)
            given = await start_turn(client, "x", session=first["session"])
            assert text_of(await followed(client, given["turn"])) == "Hello."
        assert text_of(events) == "Hello."
        started = next(event["data"] for event in events if event["type"] == "turn.started")
        assert started == {"model": "m", "local": True, "where": "sandbox", "host": near.host}
        assert near.asked[-1].headers["authorization"] == "Bearer sk-near"
        await server.stop()
        await server.start()
        async with server.client() as client:
            later = await start_turn(client, "x", session=first["session"])
            assert text_of(await followed(client, later["turn"])) == "Hello."
            turns = (await client.get(f"agent/v1/sessions/{first['session']}/items")).json()["turns"]
            assert [turn["record"]["host"] for turn in turns] == ["", near.host, "", near.host, near.host]
            await client.put("agent/v1/engine", json={"model": "", "session": first["session"]})
            own = await start_turn(client, "x", session=first["session"])
            assert text_of(await followed(client, own["turn"])) == "own"
    everything = b"".join(path.read_bytes() for path in server.directory.rglob("*") if path.is_file())
    assert b"sk-near" not in everything


async def test_a_notebook_may_choose_what_the_configuration_names_and_no_url(server: AgentServer) -> None:
    token = await server.kernel_token(await server.start_kernel("a.ipynb"))
    async with server.kernel_client(token) as kernel:
        assert (await kernel.put("agent/v1/engine", json={"model": "far"})).json()["engine"][
            "host"
        ] == "models.example.com"
        current = (await kernel.get("agent/v1/models")).json()["current"]
        assert (current["name"], current["local"], current["host"]) == ("far", False, "models.example.com")
        refused = await kernel.post("agent/v1/turns", json={"prompt": "x", "model": FAR})
        assert refused.status_code == 403
        assert (await kernel.put("agent/v1/engine", json={"model": FAR})).status_code == 202
        assert (await kernel.get("agent/v1/binding")).json()["model"]["name"] == "far"


@pytest.mark.parametrize(("decision", "then"), [("confirmed", FAR), ("denied", "")])
async def test_a_url_that_a_notebook_wishes_for_is_shown_to_the_person(
    server: AgentServer, decision: str, then: str
) -> None:
    token = await server.kernel_token(await server.start_kernel(f"{decision}.ipynb"))
    async with server.kernel_client(token) as kernel, server.client() as person:
        pending = (await kernel.put("agent/v1/engine", json={"model": FAR})).json()
        page = await person.get(pending["url"])
        assert "models.example.com" in page.text
        assert "remote" in page.text
        assert (await kernel.post(pending["url"], data={"decision": "confirmed"})).status_code == 403
        form = {"decision": decision, "_xsrf": person.cookies.get("_xsrf") or ""}
        assert (await person.post(pending["url"], data=form, headers={"Referer": pending["url"]})).status_code == 200
        assert (await kernel.get("agent/v1/binding")).json()["model"]["name"] == then


async def test_the_model_of_a_session_is_told_without_a_notebook_to_who_may_use_it(server: AgentServer) -> None:
    token = await server.kernel_token(await server.start_kernel("c.ipynb"))
    async with server.kernel_client(token) as kernel, server.client() as person:
        session = (await start_turn(person, "x"))["session"]
        (await person.put("agent/v1/engine", json={"model": "far", "session": session})).raise_for_status()
        assert (await person.get(f"agent/v1/models?session={session}")).json()["current"]["name"] == "far"
        assert (await person.get("agent/v1/models")).json()["current"]["name"] == ""
        assert (await person.get("agent/v1/models?session=none")).status_code == 404
        assert (await kernel.get(f"agent/v1/models?session={session}")).status_code == 403


async def test_a_person_may_give_a_conversation_to_a_url(server: AgentServer) -> None:
    async with server.client() as person:
        session = (await start_turn(person, "x"))["session"]
        chosen = await person.put("agent/v1/engine", json={"model": FAR, "session": session})
        assert (chosen.status_code, chosen.json()["engine"]["local"]) == (200, False)
        assert (await person.put("agent/v1/engine", json={"model": FAR})).status_code == 400
        assert (await person.put("agent/v1/engine", json={"model": "x", "session": session})).status_code == 404


async def test_a_choice_that_left_the_configuration_is_told_and_not_replaced(agent_server: ServerFactory) -> None:
    server = await agent_server([{"text": "own", "loop": True}], traits=traits("http://127.0.0.1:9/v1"))
    async with server.client() as client:
        session = (await start_turn(client, "x"))["session"]
        await client.put("agent/v1/engine", json={"model": "far", "session": session})
    await server.stop()
    server.traits = {}
    await server.start()
    async with server.client() as client:
        refused = await client.post("agent/v1/turns", json={"prompt": "x", "session": session})
        assert refused.status_code == 404
        assert "far" in refused.json()["error"]["message"]


async def test_a_server_that_keeps_conversations_here_refuses_a_person_too(agent_server: ServerFactory) -> None:
    async with (await agent_server(traits={**traits("http://127.0.0.1:9/v1"), "local_only": True})).client() as client:
        assert (await client.post("agent/v1/turns", json={"prompt": "x", "model": "far"})).status_code == 403
        assert (await client.post("agent/v1/turns", json={"prompt": "x", "model": FAR})).status_code == 403


@pytest.mark.parametrize(("upstream", "expected"), [(500, 502), (503, 503)])
async def test_a_failure_of_an_upstream_is_not_told_as_a_server_that_is_busy(
    agent_server: ServerFactory, upstream: int, expected: int
) -> None:
    """Clients try a 503 again: it is for servers that may answer later."""
    async with WireServer([status(upstream, {"error": {"message": "broken"}}, Retry_After="0.01")]) as near:
        server = await agent_server(traits=traits(near.url), env={"NEAR_KEY": "sk-near"})
        said = {"model": "near", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
        async with server.client() as client:
            for path in ("chat/completions", "messages"):
                refused = await client.post(f"agent/v1/{path}", json=said)
                assert refused.status_code == expected, refused.text
                assert f"HTTP {upstream}" in refused.json()["error"]["message"]

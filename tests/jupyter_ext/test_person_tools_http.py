"""Tests the web tools, functions and dispatch of a real server, requested over HTTP by a program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.net.web import says, served
from tests.jupyter_ext.conftest import ServerFactory
from tests.server import ROOT, Json, followed, start_turn

KEY = "sk-of-the-tools"
OWN = "tests.tools.own_functions"
REMOTE = {"name": "remote", "description": "Far away.", "parameters": {"type": "object", "properties": {}}}


def calls(when: str, *made: tuple[str, Json]) -> list[Json]:
    return [
        {"when": when, "calls": [{"name": name, "arguments": arguments} for name, arguments in made]},
        {"when": when, "text": "Done."},
    ]


def finished_calls(events: list[Json]) -> dict[str, Json]:
    return {event["data"]["name"]: event["data"] for event in events if event["type"] == "call.finished"}


async def test_a_program_uses_them_where_it_asks_and_the_key_stays_inside(agent_server: ServerFactory) -> None:
    script = [
        *calls("everything", ("web_search", {"query": "sparrows"}), ("double", {"n": 4}), ("remote", {})),
        *calls("the plain one", ("double", {"n": 5})),
        *calls("inside", ("fetch_page", {"url": "http://127.0.0.1:8888/api/kernels"})),
    ]
    async with served({"/run": says(200, f'{{"content": "{KEY} from far away"}}'.encode())}) as web:
        traits: dict[str, Any] = {
            "tools": "web,functions,dispatch",
            "web": f"{OWN}:search",
            "functions": f"{OWN}:double",
            "dispatch_url": web.url("/run"),
            "dispatch_key_env": "TOOLS_KEY",
            "policy": {"web": "auto", "dispatch": "auto"},
        }
        server = await agent_server(script, traits=traits, env={"TOOLS_KEY": KEY, "PYTHONPATH": str(ROOT)})
        async with server.client() as client:
            first = await start_turn(client, "everything", web={"search_context_size": "low"}, functions=[REMOTE])
            events = await followed(client, first["turn"])
            plain = await followed(client, (await start_turn(client, "the plain one"))["turn"])
            inside = await followed(client, (await start_turn(client, "inside", web={}))["turn"])
            items = (await client.get(f"agent/v1/sessions/{first['session']}/items")).text
    done = finished_calls(events)
    assert "All of sparrows." in done["web_search"]["text"]
    assert done["web_search"]["details"] == {"query": "sparrows", "results_count": 1, "sources": ["shelf.example"]}
    assert (done["double"]["text"], done["remote"]["text"]) == ("8", "*** from far away")
    [asked] = web.asked
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["x-session-id"] == first["session"]
    assert finished_calls(plain)["double"]["text"] == "10"
    assert "are not allowed" in finished_calls(inside)["fetch_page"]["text"]
    assert KEY not in json.dumps([events, plain, inside]) + items + server.log.read_text()


@pytest.mark.parametrize(
    "body",
    [
        {"web": {"search_context_size": "huge"}},
        {"web": {"filters": {"allowed_domains": ["a.example"] * 101}}},
        {"web": []},
        {"functions": [{"name": "two words"}]},
        {"functions": [REMOTE] * 101},
    ],
)
async def test_what_makes_no_sense_is_refused_before_the_turn_begins(server: Any, body: Json) -> None:
    async with server.client() as client:
        reply = await client.post("agent/v1/turns", json={"prompt": "hello", **body})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")

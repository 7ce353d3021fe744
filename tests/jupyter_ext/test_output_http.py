"""Tests output formats and tool_choice over HTTP, on a server with a real, very small model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agent_kernel.core.settings import Settings
from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, followed, start_turn, text_of

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
}
FORMAT = {"kind": "json_schema", "name": "person", "json_schema": SCHEMA}
SHORT = {"temperature": 0, "max_tokens": 100}


@pytest.mark.model("tiny")
async def test_an_answer_over_http_fits_its_schema_and_a_hostile_one_fails_its_turn_only(
    agent_server: ServerFactory,
) -> None:
    cache = str(Settings.from_env().cache_dir)
    async with (await agent_server(traits={"engine": "local", "model": "tiny", "cache_dir": cache})).client() as client:

        async def ended(**given: Any) -> list[Any]:
            started = await start_turn(client, "Who?", sampling=SHORT, max_tool_rounds=0, **given)
            return await followed(client, started["turn"])

        bad = {"kind": "json_schema", "json_schema": {"$ref": "http://localhost/x.json"}}
        assert (await ended(output=bad))[-1]["data"]["error"]["code"] == "invalid_request"
        bomb = {"kind": "regex", "regex": "(a+)+b"}
        assert (await ended(output=bomb))[-1]["data"]["error"]["code"] == "invalid_request"

        events = await ended(output=FORMAT)
        assert events[-1]["data"]["state"] == "committed", events[-1]
        Draft202012Validator(SCHEMA).validate(json.loads(text_of(events)))


@pytest.mark.parametrize(
    "given",
    [
        {"output": {"kind": "xml"}},
        {"output": {"kind": "json_schema", "json_schema": [1]}},
        {"output": {"kind": "choice", "choice": ["a"] * 5_000}},
        {"output": {"kind": "regex", "regex": "a" * 50_000}},
        {"output": FORMAT | {"more": 1}},
        {"tool_choice": ""},
        {"tool_choice": {"name": "python"}},
    ],
    ids=str,
)
async def test_a_body_that_makes_no_sense_is_the_clients_mistake(server: AgentServer, given: dict[str, Any]) -> None:
    async with server.client() as client:
        reply = await client.post("agent/v1/turns", json={"prompt": "hello"} | given)

    assert reply.status_code in (400, 422)
    assert reply.json()["error"]["code"] == "invalid_request"

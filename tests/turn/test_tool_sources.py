"""Tests that each tool which a server offers has a specification that a model accepts, wherever the tool runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import jsonschema
import pytest

from agent_kernel.core.files import RequestedFile
from agent_kernel.core.messages import user
from agent_kernel.core.protocols import EngineRequest, ToolSpec
from agent_kernel.core.session import SessionKey
from agent_kernel.core.settings import Settings
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.engines.local.worker.messages import request_from_json, request_to_json
from agent_kernel.turn.server_runtime import Runtime
from agent_kernel.turn.tool_sources import has_tools

SEEN_BY_CLIENTS = frozenset(
    {"notebook_cells", "read_cells", "variables", "last_error", "run_cell", "running", "python"}
)
SHOUT = ToolSpec("shout", "Says it louder", {"type": "object", "properties": {"text": {"type": "string"}}}, "function")


def shout(text: str) -> str:
    """Says it louder."""
    return text.upper()


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    script = tmp_path / "script.json"
    script.write_text("[]")
    made = Runtime.build(
        Settings(
            engine="scripted",
            script=str(script),
            store="memory",
            tools="agent",
            web="tests.turn.test_tool_sources:shout",
            functions="tests.turn.test_tool_sources:shout",
            dispatch_url="http://127.0.0.1:9/",
            data_dir=tmp_path,
        )
    )
    yield made
    await made.aclose()


@pytest.mark.parametrize("where", ["live", "draft", "sandbox"])
async def test_every_tool_goes_over_the_wire_to_a_model_and_has_a_schema(runtime: Runtime, where: str) -> None:
    request = TurnRequest(
        "hello",
        where=where,
        cell="c1",
        client_tools=SEEN_BY_CLIENTS,
        outputs=(RequestedFile("a.csv", "csv"),),
        functions=(SHOUT,),
        web={},
    )
    specs = await runtime.list_tools(SessionKey("local", "s"), request, lambda line: None)
    names = [spec.name for spec in specs]
    assert {"python", "shell", "web_search", "fetch_page", "recall", "shout", "variables", "surface_outputs"} <= {
        *names
    }
    assert len(names) == len(set(names))
    wire = json.dumps(request_to_json(EngineRequest((user("hello"),), tuple(specs))))
    arrived = request_from_json(json.loads(wire)).tools
    assert [spec.schema for spec in arrived] == [spec.schema for spec in specs]
    for spec in specs:
        jsonschema.Draft202012Validator.check_schema(spec.schema)
        assert spec.description


def test_a_server_has_the_groups_it_is_set_to_have() -> None:
    assert has_tools(Settings(tools="python, files"), "files")
    assert not has_tools(Settings(tools="python"), "shell", "files")
    assert has_tools(Settings(tools="agent"), "web")

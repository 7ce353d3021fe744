"""Tests the web tools, functions and dispatch of a server's settings, in a whole turn."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message
from agent_kernel.core.protocols import ToolSpec
from agent_kernel.core.settings import Settings
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.server_runtime import Runtime
from tests.core.net.web import says, served
from tests.scripted import call
from tests.turns import KEY, stored

OWN = "tests.tools.own_functions"
REMOTE = ToolSpec("remote", "", {"type": "object", "properties": {}}, kind="dispatch")


def runtime(tmp_path: Path, engine: ScriptedEngine, store: MemoryStore, **settings: Any) -> Runtime:
    made = Settings(data_dir=tmp_path, store="memory", **settings)
    return Runtime(made, engine, store, LinuxSandbox(tmp_path / "work", SandboxPolicy()))


async def turn(
    tmp_path: Path, calls: list[dict[str, Any]], request: TurnRequest, **settings: Any
) -> tuple[dict[str | None, Message], list[str]]:
    """Run a turn. Return the results of the calls by tool, and the names of the tools that the model had."""
    store, engine = MemoryStore(), ScriptedEngine([{"calls": calls}, {"text": "done"}] if calls else [{"text": "done"}])
    async with aclosing(runtime(tmp_path, engine, store, **settings)) as made:
        await made.agent(KEY, request).run(request)
        told = {message.name: message for message in await stored(store) if message.role == "tool"}
        return told, [tool.name for tool in engine.requests[0].tools]


async def test_functions_of_the_configuration_run_in_a_turn_and_effects_ask(tmp_path: Path) -> None:
    calls = [call("double", n=21), call("plain"), call("order", item="tea")]
    functions = f"{OWN}:double, {OWN}:order,{OWN}:plain"
    told, _ = await turn(tmp_path, calls, TurnRequest("go"), tools="functions", functions=functions)
    assert (told["double"].text, told["plain"].text) == ("42", '{"words":"hello"}')
    assert told["order"].status == "denied"


@pytest.mark.parametrize("functions", ["nowhere:f", f"{OWN}:missing", f"{OWN}:OWN", "double", f"{OWN}:Any"])
def test_functions_that_are_none_stop_the_server_with_their_name(tmp_path: Path, functions: str) -> None:
    with pytest.raises(InvalidRequest):
        runtime(tmp_path, ScriptedEngine([]), MemoryStore(), tools="functions", functions=functions)


async def test_a_declared_tool_is_dispatched_where_the_configuration_says(tmp_path: Path) -> None:
    async with served({"/run": says(200, b'{"content": "far away"}')}) as web:
        settings = {"tools": "dispatch", "dispatch_url": web.url("/run"), "policy": {"dispatch": "auto"}}
        told, _ = await turn(tmp_path, [call("remote")], TurnRequest("go", functions=(REMOTE,)), **settings)
    assert told["remote"].text == "far away"


async def test_the_web_is_searched_with_the_provider_of_the_configuration(tmp_path: Path) -> None:
    settings = {"tools": "web", "web": f"{OWN}:search", "policy": {"web": "auto"}}
    request = TurnRequest("go", web={"search_context_size": "low"})
    told, names = await turn(tmp_path, [call("web_search", query="sparrows")], request, **settings)
    assert "All of sparrows." in told["web_search"].text
    assert names == ["web_search", "fetch_page"]


@pytest.mark.parametrize("listed", [True, False])
async def test_hosts_that_the_configuration_names_may_be_fetched_and_no_others(tmp_path: Path, listed: bool) -> None:
    async with served({"/": says(200, b"intranet news")}) as web:
        hosts = {"web_hosts": web.host} if listed else {}
        settings = {"tools": "web", "web": f"{OWN}:search", "policy": {"web": "auto"}, **hosts}
        told, _ = await turn(tmp_path, [call("fetch_page", url=web.url())], TurnRequest("go", web={}), **settings)
    assert ("intranet news" in told["fetch_page"].text) is listed


@pytest.mark.parametrize("settings", [{"tools": "web", "web": "altavista"}, {"tools": "web", "web_hosts": "http://x"}])
def test_settings_of_the_web_that_name_nothing_stop_the_server(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        runtime(tmp_path, ScriptedEngine([]), MemoryStore(), **settings)


async def test_nothing_of_it_is_there_when_its_group_is_not(tmp_path: Path) -> None:
    settings = {"functions": f"{OWN}:double", "web": f"{OWN}:search", "dispatch_url": "http://127.0.0.1:9/"}
    _, names = await turn(tmp_path, [], TurnRequest("go", functions=(REMOTE,), web={}), tools="recall", **settings)
    assert names == ["recall"]

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import FetchFailed, InvalidRequest, LocalOnly
from agent_kernel.core.events import EventBody, Notice
from agent_kernel.core.protocols import ToolOutput, ToolSpec
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.tools.base import dispatch
from agent_kernel.tools.base.dispatch import DispatchTools
from agent_kernel.turn.agent import Agent
from agent_kernel.turn.agent_options import TurnServices
from tests.core.net.web import Answer, Asked, Web, drips, floods, says, says_nothing, served
from tests.tcp_server import tcp_server
from tests.tools.asking import context, occasion
from tests.turns import stored

KEY = "sk-tool-secret"
SPEC = ToolSpec("order", "Orders.", {"type": "object", "properties": {"n": {"type": "integer"}}}, kind="dispatch")
ARGUMENTS = {"n": 2, "name": "grün"}


async def call_tool(tools: DispatchTools, **request: Any) -> ToolOutput:
    offered = await tools.offer(occasion(functions=(SPEC,), **request))
    return await offered.tools[0].call(ARGUMENTS, context("order", ARGUMENTS))


async def call_page(page: Answer, *, timeout_s: float = 20.0, key_env: str = "") -> tuple[ToolOutput, list[Asked]]:
    async with served({"/tool": page}) as web:
        return await call_tool(DispatchTools(web.url("/tool"), key_env, EgressPolicy(), timeout_s)), web.asked


def answer_in_turn(*pages: Answer) -> Answer:
    """Return an answer that sends these pages one after the other and repeats the last."""
    left = list(pages)

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(asked, writer)

    return answer


async def test_a_call_is_posted_with_its_key_and_its_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_KEY", KEY)
    output, [asked] = await call_page(says(200, b'{"content": "done"}'), key_env="TOOL_KEY")
    assert (output.text, output.status, output.details) == ("done", "success", {"status": 200, "tries": 1})
    assert (asked.method, json.loads(asked.body)) == ("POST", {"name": "order", "arguments": ARGUMENTS})
    sent = {name: asked.headers[name] for name in ("authorization", "x-session-id", "x-call-id", "content-type")}
    assert sent == {
        "authorization": f"Bearer {KEY}",
        "x-session-id": "s1",
        "x-call-id": "call-1",
        "content-type": "application/json",
    }
    assert asked.headers["idempotency-key"] == "turn-1:1:call-1"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"content": "text"}', "text"),
        ('{"content": ""}', "(it said nothing)"),
        ('{"content": {"a": 1}}', '{"content": {"a": 1}}'),
        ('{"result": 1}', '{"result": 1}'),
        ('"a string"', '"a string"'),
        ("[1, 2]", "[1, 2]"),
        ("plain\ntext", "plain\ntext"),
        ("{broken", "{broken"),
        ("", "(it said nothing)"),
    ],
)
async def test_an_answer_is_its_content_or_itself(body: str, text: str) -> None:
    output, _ = await call_page(says(200, body.encode()))
    assert (output.text, output.status) == (text, "success")


@pytest.mark.parametrize("status", [201, 202])
async def test_every_2xx_is_an_answer(status: int) -> None:
    output, _ = await call_page(says(status, b"fine"))
    assert output.text == "fine"


async def test_what_is_no_text_is_read_as_well_as_can_be() -> None:
    assert (await call_page(says(200, b"a\xffb")))[0].text == "a\ufffdb"
    assert (await call_page(says(200, gzip.compress(b"packed"), content_encoding="gzip")))[0].text == "packed"


@pytest.mark.parametrize("status", [302, 400, 401, 404, 429, 500, 503])
async def test_an_error_names_its_status_once_and_never_the_key(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_KEY", KEY)
    body = f"your key {KEY} is bad {'x' * 5_000}".encode()
    output, asked = await call_page(says(status, body, location="http://127.0.0.1/"), key_env="TOOL_KEY")
    assert (output.status, output.details["status"], len(asked)) == ("error", status, 1)
    assert f"HTTP {status}" in output.text
    assert KEY not in output.text
    assert len(output.text) < 500


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_server_is_asked_again_when_it_says_when(status: int) -> None:
    page = answer_in_turn(says(status, retry_after="0"), says(status, retry_after=formatdate(0)), says(200, b"now"))
    output, asked = await call_page(page)
    assert (output.text, output.details["tries"]) == ("now", 3)
    assert len({one.headers["idempotency-key"] for one in asked}) == 1


async def test_a_server_that_stays_busy_is_not_asked_for_ever() -> None:
    output, asked = await call_page(says(503, retry_after="0"))
    assert (output.status, len(asked)) == ("error", dispatch.TRIES)


async def test_a_server_that_wants_too_long_is_not_waited_for() -> None:
    output, asked = await call_page(says(503, retry_after="3600"), timeout_s=0.2)
    assert (output.status, len(asked)) == ("timeout", 1)


@pytest.mark.parametrize("status", [500, 502, 504])
async def test_what_may_have_happened_is_not_asked_for_again(status: int) -> None:
    output, asked = await call_page(says(status, retry_after="0"))
    assert (output.status, len(asked)) == ("error", 1)


async def test_a_connection_that_breaks_off_is_not_tried_again() -> None:
    async def hangs_up(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with served({"/tool": hangs_up}) as web:
        with pytest.raises(FetchFailed, match="did not answer"):
            await call_tool(DispatchTools(web.url("/tool"), "", EgressPolicy()))
        assert len(web.asked) == 1


async def test_a_server_that_is_just_starting_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PAUSE_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    call = asyncio.create_task(call_tool(DispatchTools(f"http://127.0.0.1:{port}/tool", "", EgressPolicy())))
    await asyncio.sleep(0.8)
    web = Web(pages={"/tool": says(200, b"started")})
    async with tcp_server(web.serve, port=port):
        output = await call
    assert (output.text, output.details["tries"] > 1) == ("started", True)


async def test_a_server_that_is_not_there_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PAUSE_S", 0.0)
    async with served({}) as web:
        pass
    with pytest.raises(FetchFailed, match="cannot be reached"):
        await call_tool(DispatchTools(web.url("/tool"), "", EgressPolicy()))


@pytest.mark.parametrize("page", [says_nothing(), drips(0.01)], ids=["silence", "a drip"])
async def test_a_server_that_never_answers_is_given_up(page: Answer) -> None:
    output, _ = await call_page(page, timeout_s=0.2)
    assert (output.status, output.text) == ("timeout", "The tool's server did not answer within 0.2 s.")


@pytest.mark.parametrize(
    "page", [floods(), says(200, gzip.compress(bytes(64 << 20)), content_encoding="gzip")], ids=["flood", "bomb"]
)
async def test_an_endless_answer_is_not_read_on(page: Answer) -> None:
    async with served({"/tool": page}) as web:
        with pytest.raises(FetchFailed, match="the rest was not read"):
            await call_tool(DispatchTools(web.url("/tool"), "", EgressPolicy()))


@pytest.mark.parametrize("key", ["", "  ", "two\nlines", "schlüssel"])
async def test_without_its_key_nothing_is_sent(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_KEY", key)
    async with served({"/tool": says(200, b"x")}) as web:
        with pytest.raises(InvalidRequest, match="TOOL_KEY"):
            await call_tool(DispatchTools(web.url("/tool"), "TOOL_KEY", EgressPolicy()))
        assert web.asked == []


async def test_a_key_goes_only_where_the_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_KEY", KEY)
    async with served({"/tool": says(200, b"x")}) as web, served({"/other": says(200, b"y")}) as other:
        tools = DispatchTools(web.url("/tool"), "TOOL_KEY", EgressPolicy())
        assert (await call_tool(tools, dispatch_url=other.url("/other"))).text == "y"
        assert (await call_tool(tools, dispatch_url=web.url("/tool"))).text == "x"
    assert "authorization" not in other.asked[0].headers
    assert web.asked[0].headers["authorization"] == f"Bearer {KEY}"


async def test_ids_of_any_characters_travel_as_plain_ones() -> None:
    async with served({"/tool": says(200, b"x")}) as web:
        tools = DispatchTools(web.url("/tool"), "", EgressPolicy())
        [tool] = (await tools.offer(occasion(functions=(SPEC,)))).tools
        odd = context("order", {})
        odd = replace(odd, call=replace(odd.call, id="ä\r\nX-Evil: 1"))
        await tool.call({}, odd)
    assert web.asked[0].headers["x-call-id"] == "%C3%A4%0D%0AX-Evil:%201"
    assert "x-evil" not in web.asked[0].headers


async def test_only_what_nobody_else_runs_is_dispatched() -> None:
    tools = DispatchTools("http://127.0.0.1:9/", "", EgressPolicy())
    assert (await tools.offer(occasion(functions=(SPEC,), client_tools=frozenset({"order"})))).tools == ()
    assert (await tools.offer(occasion(functions=(SPEC,), tools=("python",)))).tools == ()
    assert (await tools.offer(occasion())).tools == ()
    events: list[EventBody] = []
    assert (await DispatchTools("", "", EgressPolicy()).offer(occasion(events, functions=(SPEC,)))).tools == ()
    assert [event.text for event in events if isinstance(event, Notice)] == [dispatch.NOBODY.format(names="order")]
    [tool] = (await tools.offer(occasion(functions=(SPEC,), tools=("order",)))).tools
    assert (tool.spec.kind, tool.spec.where, tool.spec.source) == ("dispatch", "server", "external")


async def test_local_only_dispatches_to_this_machine_alone() -> None:
    events: list[EventBody] = []
    away = DispatchTools("https://tools.example/", "", EgressPolicy(local_only=True))
    assert (await away.offer(occasion(events, functions=(SPEC,)))).tools == ()
    assert isinstance(events[0], Notice)
    with pytest.raises(LocalOnly):
        await dispatch.Dispatcher("https://tools.example/", "", EgressPolicy(local_only=True)).run(context())
    async with served({"/": says(200, b"here")}) as web:
        assert (await call_tool(DispatchTools(web.url(), "", EgressPolicy(local_only=True)))).text == "here"


@pytest.mark.parametrize("url", ["tools.example", "file:///etc/passwd", "unix:/x"])
def test_a_dispatch_url_is_one_of_the_web(url: str) -> None:
    with pytest.raises(InvalidRequest, match="http"):
        DispatchTools(url, "", EgressPolicy())


async def test_a_turn_goes_on_after_a_tool_that_never_answered() -> None:
    async with served({"/": says_nothing()}) as web:
        engine = ScriptedEngine([{"calls": [{"name": "order", "arguments": {"n": 1}}]}, {"text": "I could not."}])
        store = MemoryStore()
        gate = Gate(Approvals(), policy={"dispatch": "auto"})
        agent = Agent(
            store,
            engine,
            "s1",
            gate=gate,
            services=TurnServices(sources=[DispatchTools(web.url(), "", EgressPolicy(), 0.1)]),
        )
        result = await agent.run(TurnRequest("order one", functions=(SPEC,)))
    assert (result.state, result.text) == ("committed", "I could not.")
    assert [message.status for message in await stored(store) if message.role == "tool"] == ["timeout"]

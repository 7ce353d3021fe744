"""Tests that an MCP client which loses its connection gets the answer of its call, with the official SDK's client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from tests.relay import Relay
from tests.server import TOKEN, AgentServer, Json

CODE = {"name": "python", "arguments": {"code": "6 * 7"}}
SLOW = "it is " + "slow " * 20
SCRIPT: list[Json] = [
    {"calls": [CODE], "when": "compute slowly"},
    {"text": SLOW, "deltas": 20, "delay": 0.15, "when": "slowly", "loop": True},
    {"text": "x" * 1_200_000, "when": "long", "loop": True},
    {"text": "it is 42", "loop": True},
]
ANSWER = SLOW.strip()
CALL = {"name": "agent", "arguments": {"prompt": "slowly"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServer]:
    with AgentServer(tmp_path_factory.mktemp("mcp"), SCRIPT) as made:
        asyncio.run(made.start())
        yield made


class RawSession:
    """An MCP session whose HTTP requests a test sends itself."""

    def __init__(self, server: AgentServer, version: str) -> None:
        self._server = server
        self.version = version
        accept = {"Accept": "application/json, text/event-stream", "Authorization": f"token {TOKEN}"}
        self.headers = accept | {"MCP-Protocol-Version": version}

    async def open(self) -> RawSession:
        info = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        async with self.client() as http:
            opened = await http.post("agent/v1/mcp", json=request(0, "initialize", info))
            self.headers["Mcp-Session-Id"] = opened.headers["Mcp-Session-Id"]
            await http.post("agent/v1/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def client(self) -> httpx.AsyncClient:
        return self._server.client(None, headers=self.headers)

    async def call(self, id: int, params: Json) -> AsyncGenerator[Json]:
        """Yield the events of the stream that answers a tool call."""
        async with (
            self.client() as http,
            http.stream("POST", "agent/v1/mcp", json=request(id, "tools/call", params)) as reply,
        ):
            async for event in events_of(reply):
                yield event

    async def resume(self, last: str) -> tuple[int, list[Json]]:
        """Return the status and all events after the event ``last``, without the first one, which has no data. Clients
        that know the last event of each connection only can resume after it if they lose this connection too."""
        async with self.client() as http, self._resumed(http, last) as reply:
            events = [event async for event in events_of(reply)]
        first = [event for event in events if not event["data"]]
        assert [event["id"] for event in first] == [last] * (bool(events) and self.version >= "2025-11-25")
        return reply.status_code, events[len(first) :]

    def _resumed(self, http: httpx.AsyncClient, last: str) -> AbstractAsyncContextManager[httpx.Response]:
        return http.stream("GET", "agent/v1/mcp", headers={"Last-Event-ID": last}, timeout=20)

    async def first_resumed(self, last: str) -> Json:
        """Return the first event of the stream that continues after ``last``, and close the connection."""
        async with self.client() as http, self._resumed(http, last) as reply:
            return await first_of(events_of(reply))


def request(id: int, method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def events_of(reply: httpx.Response) -> AsyncGenerator[Json]:
    event: Json = {}
    async for line in reply.aiter_lines():
        if not line and event:
            yield event
            event = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(":")
            event[name] = value.strip()


def result_of(event: Json) -> Json:
    result: Json = json.loads(event["data"])["result"]
    return result


async def first_of(stream: AsyncGenerator[Json]) -> Json:
    """Return the first event, and close the connection."""
    async with aclosing(stream) as events:
        async for event in events:
            return event
    raise AssertionError("the stream has no event")


async def cut_call(server: AgentServer, prompt: str, **given: Any) -> Any:
    """Call the agent with the SDK's client, and cut all its connections as soon as the turn runs."""
    async with Relay(server.port) as relay:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
            transport = streamable_http_client(f"http://127.0.0.1:{relay.port}/agent/v1/mcp", http_client=http)
            async with Client(transport, mode="legacy", cache=None, **given) as mcp:
                calling = asyncio.create_task(mcp.call_tool("agent", {"prompt": prompt, "session": "cut"}))
                async with server.client() as panel:
                    while not (await panel.get("agent/v1/sessions/cut/items")).is_success:
                        await asyncio.sleep(0.02)
                relay.cut()
                return await calling


async def test_a_client_that_loses_its_connection_resumes_the_stream(server: AgentServer) -> None:
    answer = await cut_call(server, "slowly")
    assert (answer.is_error, answer.content[0].text.strip()) == (False, ANSWER)


async def test_a_question_that_is_asked_while_there_is_no_connection_reaches_the_client(tmp_path: Path) -> None:
    script: list[Json] = [{"text": "let me see", "deltas": 5, "delay": 0.1, "calls": [CODE]}, {"text": "it is 42"}]
    made = AgentServer(tmp_path / "server", script, {"tools": "python", "permission": "ask"})
    made.directory.mkdir()

    async def allow(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"decision": "allow once"})

    with made:
        await made.start()
        answer = await cut_call(made, "compute", elicitation_callback=allow)
    assert answer.content[0].text == "it is 42"
    assert answer.structured_content["calls"] == [{"name": "python", "status": "success"}]


async def test_events_have_ids_and_a_stream_goes_on_after_any_of_them(server: AgentServer) -> None:
    session = await RawSession(server, "2025-11-25").open()
    first = await first_of(session.call(1, CALL | {"_meta": {"progressToken": "p"}}))
    assert (first["data"], bool(first["id"])) == ("", True), "an event without data, only to resume after it"
    (status, all_events), (_, same) = await asyncio.gather(session.resume(first["id"]), session.resume(first["id"]))
    assert (status, all_events) == (200, same)
    assert result_of(all_events[-1])["content"][0]["text"].strip() == ANSWER
    assert json.loads(all_events[-1]["data"])["id"] == 1
    ids = [event["id"] for event in all_events]
    assert len({first["id"], *ids}) == len(ids) + 1
    for number, id in enumerate(ids[:-1]):
        assert await session.resume(id) == (200, all_events[number + 1 :])
    assert await session.resume(ids[-1]) == (204, []), "a client that has everything stops reconnecting"


async def test_a_stream_has_the_messages_of_its_own_request(server: AgentServer) -> None:
    session = await RawSession(server, "2025-11-25").open()
    slow, other = await asyncio.gather(
        first_of(session.call(1, CALL)),
        first_of(session.call(2, {"name": "agent", "arguments": {"prompt": "quickly"}})),
    )
    for token, id in ((slow, 1), (other, 2)):
        _, events = await session.resume(token["id"])
        assert [json.loads(event["data"])["id"] for event in events] == [id]


async def test_a_connection_that_is_lost_again_before_an_event_is_resumed(server: AgentServer) -> None:
    session = await RawSession(server, "2025-11-25").open()
    first = await first_of(session.call(1, CALL))
    again = await session.first_resumed((await session.first_resumed(first["id"]))["id"])
    _, events = await session.resume(again["id"])
    assert result_of(events[-1])["content"][0]["text"].strip() == ANSWER


async def test_clients_of_earlier_versions_have_ids_but_no_event_without_data(server: AgentServer) -> None:
    session = await RawSession(server, "2025-06-18").open()
    events = [event async for event in session.call(1, CALL)]
    assert all(event["data"] and event["id"] for event in events)
    assert result_of(events[-1])["content"][0]["text"].strip() == ANSWER
    computing = {"name": "agent", "arguments": {"prompt": "compute slowly"}, "_meta": {"progressToken": "p"}}
    progress = await first_of(session.call(2, computing))
    status, resumed = await session.resume(progress["id"])
    assert (status, progress["data"] in [event["data"] for event in resumed]) == (200, False)
    assert result_of(resumed[-1])["content"][0]["text"].strip() == ANSWER


async def test_events_belong_to_one_session(server: AgentServer) -> None:
    mine, other = await RawSession(server, "2025-11-25").open(), await RawSession(server, "2025-11-25").open()
    first = await first_of(mine.call(1, {"name": "agent", "arguments": {"prompt": "quickly"}}))
    other_first = await first_of(other.call(1, {"name": "list_sessions", "arguments": {}}))
    assert await other.resume(first["id"]) == (200, []), "it is no event of this session"
    _, events = await other.resume(other_first["id"])
    assert "sessions" in result_of(events[-1])["structuredContent"]
    _, events = await mine.resume(first["id"])
    assert result_of(events[-1])["content"][0]["text"] == "it is 42"


async def test_a_session_keeps_a_limited_number_of_bytes_but_every_open_stream(server: AgentServer) -> None:
    session = await RawSession(server, "2025-11-25").open()
    slow = await first_of(session.call(1, CALL))
    long = {"name": "agent", "arguments": {"prompt": "long"}}
    streams = [[event async for event in session.call(number, long)] for number in (2, 3)]
    assert await session.resume(streams[0][0]["id"]) == (204, []), "its stream was removed for the later one"
    assert await session.resume(streams[1][0]["id"]) == (200, streams[1][1:])
    _, events = await session.resume(slow["id"])
    assert result_of(events[-1])["content"][0]["text"].strip() == ANSWER


async def test_a_client_that_uses_an_id_again_begins_a_new_stream(server: AgentServer) -> None:
    """The protocol forbids this. The events of such a client must not grow without a limit."""
    session = await RawSession(server, "2025-11-25").open()
    quick = {"name": "agent", "arguments": {"prompt": "quickly"}}
    first, second = [[event async for event in session.call(1, quick)] for _ in range(2)]
    assert await session.resume(first[0]["id"]) == (204, [])
    assert await session.resume(second[0]["id"]) == (200, second[1:])


async def test_a_resumed_stream_ends_with_its_session(server: AgentServer) -> None:
    session = await RawSession(server, "2025-11-25").open()
    first = await first_of(session.call(1, CALL))
    resumed = asyncio.create_task(session.resume(first["id"]))
    await asyncio.sleep(0.3)
    async with session.client() as http:
        assert (await http.delete("agent/v1/mcp")).status_code == 200
        async with asyncio.timeout(5):
            assert await resumed == (200, [])
        gone = await http.get("agent/v1/mcp", headers={"Last-Event-ID": first["id"]})
    assert gone.status_code == 404


async def test_a_server_that_stops_does_not_wait_for_a_resumed_stream(tmp_path: Path) -> None:
    made = AgentServer(tmp_path / "server", [{"text": "slow " * 600, "deltas": 600, "delay": 0.1, "loop": True}])
    made.directory.mkdir()
    with made:
        await made.start()
        session = await RawSession(made, "2025-11-25").open()
        first = await first_of(session.call(1, CALL))
        resumed: asyncio.Task[Any] = asyncio.create_task(session.resume(first["id"]))
        await asyncio.sleep(0.3)
        async with asyncio.timeout(15):
            assert await made.stop() == 0
            await asyncio.wait([resumed])

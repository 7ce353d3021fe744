"""Tests that a client follows a turn to its end through lost connections and a killed server, and gets every event
once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent_kernel import Client
from agent_kernel.client.discovery import ServerAddress
from agent_kernel.client.http import ServerConnection
from agent_kernel.client.turn import follow_turn, resume_pauses
from agent_kernel.core.errors import AgentKernelError, Forbidden, NotFound, ServerUnreachable, TokenInvalid
from agent_kernel.core.events import CallFinished, CallStarted, Event, EventNumbering, TextDelta, TurnFinished
from agent_kernel.core.wire.turn_follower import TurnFollower
from tests.client.conftest import Serve
from tests.client.failing import answer
from tests.narrowing import instance_of
from tests.relay import Relay
from tests.server import TOKEN, AgentServer
from tests.tcp_server import tcp_server
from tests.turns import text_of

SLOW = "".join(f"word{number} " for number in range(60))
SCRIPT: list[dict[str, Any]] = [
    {"text": SLOW, "deltas": 60, "delay": 0.03, "when": "slow without an end", "fault": "hang"},
    {"text": SLOW, "deltas": 60, "delay": 0.03, "when": "slow", "loop": True},
    {"text": "First. ", "calls": [{"name": "python", "arguments": {"code": "1 + 1"}}], "when": "then hang"},
    {"text": "Second.", "deltas": 4, "fault": "hang", "when": "then hang"},
    {"text": "Hello.", "loop": True},
]


@pytest.fixture
async def relay(server: AgentServer) -> AsyncIterator[Relay]:
    async with Relay(server.port) as relay:
        yield relay


async def test_a_stream_whose_connection_is_cut_again_and_again_has_every_event_once(relay: Relay) -> None:
    events: list[Event] = []
    async with Client(f"http://127.0.0.1:{relay.port}/", token=TOKEN) as client:
        async for event in client.stream("slow"):
            events.append(event)
            if isinstance(event.body, TextDelta) and len(events) % 5 == 0:
                relay.cut()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert text_of(events) == SLOW
    assert relay.connections > 3


async def test_a_server_that_can_not_be_reached_for_a_while_is_waited_for(relay: Relay) -> None:
    events: list[Event] = []
    async with Client(f"http://127.0.0.1:{relay.port}/", token=TOKEN) as client:
        async for event in client.stream("slow"):
            events.append(event)
            if len(events) == 5:
                await relay.close()
                asyncio.get_running_loop().call_later(0.5, lambda: asyncio.ensure_future(relay.open()))
    assert text_of(events) == SLOW
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_a_server_that_never_comes_back_is_an_error_in_the_end(relay: Relay) -> None:
    here = f"http://127.0.0.1:{relay.port}/"
    async with Client(here, token=TOKEN, resume_s=0.3, retries=0) as client, client.stream("slow") as turn:
        await relay.close()
        with pytest.raises(ServerUnreachable):
            await turn.result()


@pytest.mark.parametrize(
    ("refusal", "told"), [(TokenInvalid, TokenInvalid), (Forbidden, ServerUnreachable), (NotFound, ServerUnreachable)]
)
async def test_a_token_that_was_revoked_in_mid_turn_is_told_as_that_and_not_as_a_restart(
    serve: Serve, refusal: type[AgentKernelError], told: type[AgentKernelError]
) -> None:
    connection, _ = await serve(answer(403, {"error": refusal("not any more").to_json()}))
    with pytest.raises(AgentKernelError) as caught:
        await anext(follow_turn(connection, TurnFollower("t", after=1, pauses=lambda: resume_pauses(1.0))))
    assert type(caught.value) is told


async def test_the_last_event_ends_the_reading_even_if_a_proxy_keeps_the_stream_open() -> None:
    finished = EventNumbering("t", "s")(TurnFinished("committed", "", 1, {}))
    sent_at = 0.0
    is_left = asyncio.Event()
    sent = f"id: {finished.seq}\nevent: {finished.body.type}\ndata: {json.dumps(finished.to_json())}\n\n"

    async def respond_and_stay_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent_at
        await reader.readuntil(b"\r\n\r\n")
        sent_at = time.monotonic()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + sent.encode())
        await reader.read()  # until the client closes the connection
        is_left.set()

    async with tcp_server(respond_and_stay_open) as port:
        connection = ServerConnection(ServerAddress(f"http://127.0.0.1:{port}/"))
        events = [event async for event in follow_turn(connection, TurnFollower("t", pauses=lambda: iter(())))]
        assert time.monotonic() - sent_at < 10.0
        await connection.aclose()
        await is_left.wait()
    assert [event.body for event in events] == [finished.body]


class Deaf(Relay):
    """A relay that drops the responses to ``lose`` requests that start a turn, after the server has accepted them."""

    lose = 0

    async def _passes_on(
        self, reader: asyncio.StreamReader, far_reader: asyncio.StreamReader, far_writer: asyncio.StreamWriter
    ) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        far_writer.write(head)
        if not (head.startswith(b"POST") and b"/turns HTTP" in head and self.lose):
            return True
        self.lose -= 1
        body = int(head.lower().partition(b"content-length:")[2].split()[0])
        far_writer.write(await reader.readexactly(body))
        await far_reader.readuntil(b"\r\n\r\n")
        return False


async def test_a_turn_whose_answer_was_lost_is_the_same_turn_when_it_is_asked_for_again(server: AgentServer) -> None:
    async with Deaf(server.port) as relay:
        for lost in (1, 2):
            async with Client(f"http://127.0.0.1:{relay.port}/", token=TOKEN) as client:
                relay.lose = lost
                result = await client.run("hello", session=f"lost-{lost}")
            async with Client(server.url, token=TOKEN) as client:
                assert (result.text, relay.lose) == ("Hello.", 0)
                assert [turn["turn"] for turn in await client.sessions.turns(result.session)] == [result.turn]


async def test_a_connection_that_is_cut_at_any_moment_makes_no_second_turn(relay: Relay) -> None:
    async with Client(f"http://127.0.0.1:{relay.port}/", token=TOKEN) as client:
        session = (await client.sessions.create()).id
        for count, delay in enumerate((0.0, 0.002, 0.005, 0.01, 0.02), start=1):
            asyncio.get_running_loop().call_later(delay, relay.cut)
            assert (await client.run("hello", session=session)).text == "Hello."
            assert len(await client.sessions.turns(session)) == count


async def test_what_was_kept_when_the_server_was_killed_is_told_without_a_word_twice(server: AgentServer) -> None:
    events: list[Event] = []
    async with Client(server.url, token=TOKEN) as client:
        async with asyncio.timeout(120):
            async for event in client.stream("then hang"):
                events.append(event)
                if isinstance(event.body, TextDelta) and event.body.text.startswith("S"):
                    await server.kill()
                    again = asyncio.create_task(server.start(server.port))
        await again
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert "Second.".startswith(text_of(events).removeprefix("First. "))
    assert [type(event.body) for event in events].count(CallStarted) == 1
    assert [type(event.body) for event in events].count(CallFinished) == 1
    assert instance_of(TurnFinished, events[-1].body).state == "interrupted"


async def test_a_server_that_is_stopped_in_order_says_how_the_turn_ended(server: AgentServer) -> None:
    events: list[Event] = []
    async with Client(server.url, token=TOKEN) as client:
        async with asyncio.timeout(120):
            async for event in client.stream("slow without an end"):
                events.append(event)
                if len(events) == 5:
                    again = asyncio.create_task(stopped_and_started(server))
        await again
    assert SLOW.startswith(text_of(events))
    assert instance_of(TurnFinished, events[-1].body).state in ("cancelled", "interrupted")


async def stopped_and_started(server: AgentServer) -> None:
    await server.stop()
    await server.start(server.port)

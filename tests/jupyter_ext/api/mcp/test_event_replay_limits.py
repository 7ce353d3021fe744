"""Tests that the stored messages of one MCP session have limits, with the messages of the SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp.server.streamable_http import EventMessage
from mcp_types import JSONRPCNotification, JSONRPCResponse

from jupyter_ext.api.mcp import event_replay
from jupyter_ext.api.mcp.event_replay import EventReplay


def note(text: str) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": text})


def response(text: str = "") -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=1, result={"text": text})


def stored(replay: EventReplay) -> list[event_replay.StoredEvent]:
    return [event for stream in replay._streams.values() for event in stream.events]


async def replayed(replay: EventReplay, last: str) -> list[Any]:
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event.message)

    async with asyncio.timeout(5):
        await replay.replay_events_after(last, send)
    return sent


@pytest.mark.parametrize("streams", [1, 3, 10_000])
async def test_streams_without_a_response_have_a_limited_number_of_events(streams: int) -> None:
    replay = EventReplay(EventMessage)
    for number in range(10_000):
        newest = await replay.store_event(f"stream {number % streams}", note("x"))
    assert len(stored(replay)) == event_replay.MAX_OPEN_EVENTS
    assert len(replay._streams) <= event_replay.MAX_OPEN_EVENTS
    assert replay.can_resume(newest)


async def test_streams_without_a_response_have_a_limited_size() -> None:
    replay = EventReplay(EventMessage)
    for number in range(300):
        await replay.store_event(f"stream {number % 7}", note("x" * 100_000))
    assert sum(event.size for event in stored(replay)) <= event_replay.MAX_OPEN_BYTES


async def test_a_stream_whose_oldest_events_were_removed_is_resumed_after_the_other_ones() -> None:
    replay = EventReplay(EventMessage)
    first = await replay.store_event("call", None)
    ids = [await replay.store_event("call", note(str(number))) for number in range(event_replay.MAX_OPEN_EVENTS + 10)]
    assert not replay.can_resume(first)
    assert not replay.can_resume(ids[5])
    assert replay.can_resume(ids[-3])
    end = response("done")
    await replay.store_event("call", end)
    opening, *messages = await replayed(replay, ids[-3])
    assert opening.model_dump_json() == ""
    assert messages == [note(str(len(ids) - 2)), note(str(len(ids) - 1)), end]
    assert await replayed(replay, first) == []


async def test_large_complete_streams_remove_nothing_of_an_open_one() -> None:
    replay = EventReplay(EventMessage)
    first = await replay.store_event("open", None)
    for number in range(5):
        await replay.store_event(str(number), response("x" * event_replay.MAX_BYTES))
    await replay.store_event("open", response())
    assert [message for message in await replayed(replay, first) if hasattr(message, "result")] == [response()]
    assert len(stored(replay)) == 2, "only the newest stream is kept above the limit"


async def test_a_reader_that_is_too_slow_for_the_limit_ends() -> None:
    replay = EventReplay(EventMessage)
    first = await replay.store_event("call", None)
    sent: list[Any] = []

    async def send_slowly(event: Any) -> None:
        sent.append(event)
        for number in range(event_replay.MAX_OPEN_EVENTS + 1):
            await replay.store_event("another call", note(str(number)))

    async with asyncio.timeout(30):
        await replay.replay_events_after(first, send_slowly)
    assert len(sent) == 1

"""Tests the messages that wait to be written to a page: bounded, in order, and discarded if the page does not read."""

from __future__ import annotations

import asyncio
import json

import pytest

from jupyter_ext.push.page_outbox import TOO_SLOW, Outbox, PageGone


class Wire:
    """A connection that accepts one message each time a test allows it."""

    def __init__(self, *, max_news: int = 5, stalled_s: float = 60.0) -> None:
        self.written: list[int] = []
        self.lost: list[int] = []
        self.gone = False
        self.room = asyncio.Semaphore(0)
        self.outbox = Outbox(
            self._write, lambda code, reason: self.lost.append(code), max_news=max_news, stalled_s=stalled_s
        )

    async def _write(self, text: str) -> None:
        if self.gone:
            raise PageGone
        await self.room.acquire()
        self.written.append(json.loads(text)["n"])

    async def take(self, count: int) -> None:
        for _ in range(count):
            self.room.release()
        await asyncio.sleep(0.01)


async def test_messages_are_written_in_the_order_in_which_they_came() -> None:
    wire = Wire()
    await wire.outbox.send({"n": 0})
    for number in (1, 2):
        wire.outbox.send_now({"n": number})
    later = asyncio.create_task(wire.outbox.send({"n": 3}))
    await wire.take(4)
    await later
    assert wire.written == [0, 1, 2, 3]
    wire.outbox.close()


async def test_events_of_many_turns_wait_with_their_readers_and_take_turns() -> None:
    wire = Wire()
    senders = [asyncio.create_task(wire.outbox.send({"n": number})) for number in range(200)]
    await asyncio.sleep(0.1)
    assert wire.outbox.waiting <= 1
    assert sum(sender.done() for sender in senders) == 1
    await wire.take(200)
    await asyncio.gather(*senders)
    assert wire.written == list(range(200))
    wire.outbox.close()


async def test_who_stops_waiting_has_sent_nothing() -> None:
    wire = Wire()
    await wire.outbox.send({"n": 0})
    left = asyncio.create_task(wire.outbox.send({"n": 1}))
    stays = asyncio.create_task(wire.outbox.send({"n": 2}))
    await asyncio.sleep(0.1)
    left.cancel()
    await wire.take(3)
    await stays
    assert wire.written == [0, 2]
    wire.outbox.close()


async def test_a_page_that_leaves_its_news_unread_is_given_up_and_nothing_waits_for_it() -> None:
    wire = Wire(max_news=5)
    await wire.outbox.send({"n": 0})
    waits = asyncio.create_task(wire.outbox.send({"n": 1}))
    await asyncio.sleep(0.1)
    for number in range(20):
        wire.outbox.send_now({"n": number})
    assert wire.lost == [TOO_SLOW]
    assert wire.outbox.waiting == 0
    with pytest.raises(PageGone):
        await waits
    with pytest.raises(PageGone):
        await wire.outbox.send({"n": 2})
    await wire.take(5)
    assert wire.written == []


async def test_a_page_that_has_stopped_reading_is_given_up_after_a_while() -> None:
    wire = Wire(stalled_s=0.02)
    await wire.outbox.send({"n": 0})
    waits = asyncio.create_task(wire.outbox.send({"n": 1}))
    with pytest.raises(PageGone):
        await asyncio.wait_for(wire.outbox.send({"n": 2}), 30)
    assert wire.lost == [TOO_SLOW]
    await asyncio.gather(waits, return_exceptions=True)


async def test_nothing_is_written_to_a_page_that_is_gone() -> None:
    wire = Wire()
    wire.gone = True
    await wire.outbox.send({"n": 0})
    with pytest.raises(PageGone):
        await asyncio.wait_for(wire.outbox.send({"n": 1}), 30)
    wire.outbox.send_now({"n": 2})
    assert (wire.outbox.waiting, wire.written, wire.lost) == (0, [], [])


async def test_half_a_surrogate_pair_of_a_model_is_written_and_what_follows_too() -> None:
    written: list[dict[str, str]] = []

    async def write(text: str) -> None:
        written.append(json.loads(text.encode()))

    outbox = Outbox(write, lambda code, reason: None)
    await outbox.send({"t": "\ud83d"})
    await outbox.send({"t": "next"})
    await asyncio.sleep(0.1)
    assert [one["t"] for one in written][1:] == ["next"]
    outbox.close()


async def test_a_page_that_can_not_be_written_to_is_given_up_and_nobody_waits_for_it() -> None:
    lost: list[int] = []

    async def write(text: str) -> None:
        raise OSError("broken")

    outbox = Outbox(write, lambda code, reason: lost.append(code))
    await outbox.send({"n": 1})
    await asyncio.sleep(0.1)
    with pytest.raises(PageGone):
        await outbox.send({"n": 2})
    assert lost == [TOO_SLOW]

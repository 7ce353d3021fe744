"""Tests what one page occupies on the server, and that it is released when the page closes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from agent_kernel.core.errors import QuotaExceeded, StoreError
from agent_kernel.core.events import Event, EventNumbering, Notice, TextDelta, TurnFinished
from jupyter_ext.notebooks.page_tools import PageTools
from jupyter_ext.push.page_connection import MAX_HELD, PageConnection, PageConnections
from jupyter_ext.push.page_outbox import Outbox
from jupyter_ext.turns.event_log import EventLog

END = TurnFinished("committed", "", 0, {})


FOLLOWING = {"type": "following", "turn": "t"}


class Heard:
    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.closed: list[int] = []
        self.page = PageConnection(Outbox(self._write, lambda code, reason: self.closed.append(code)))

    async def _write(self, text: str) -> None:
        self.said.append(json.loads(text))

    def seqs(self) -> list[int]:
        return [said["seq"] for said in self.said if "seq" in said]

    def since(self, number: int) -> list[int]:
        """Return the numbers of the events after the reply to that request."""
        places = [at for at, said in enumerate(self.said) if said == {**FOLLOWING, "number": number}]
        return [said["seq"] for said in self.said[places[0] :] if "seq" in said]


def nothing() -> Callable[[], None]:
    return lambda: None


async def test_a_turn_that_ends_leaves_the_table_and_one_that_is_followed_anew_stays() -> None:
    heard, log = Heard(), EventLog("t", "s")
    heard.page.follow("t", log.follow(), {})
    await asyncio.sleep(0)
    heard.page.follow("t", log.follow(), {})
    await asyncio.sleep(0.1)
    assert heard.page.held_count == 1
    log.append(TextDelta("a"))
    log.append(END)
    await asyncio.sleep(0.1)
    assert (heard.page.held_count, heard.seqs()) == (0, [1, 2])
    heard.page.follow("t", log.follow(1), {})
    await asyncio.sleep(0.1)
    assert (heard.page.held_count, heard.seqs()) == (0, [1, 2, 2])


async def test_behind_the_answer_there_are_only_events_of_the_new_place() -> None:
    heard, log = Heard(), EventLog("t", "s")
    for number in range(20):
        log.append(Notice("info", str(number)))
    heard.page.follow("t", log.follow(), {}, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    heard.page.follow("t", log.follow(15), {}, 2)
    await asyncio.sleep(0.1)
    assert heard.since(2) == [16, 17, 18, 19, 20]
    heard.page.close()


async def test_closing_ends_all_of_it_and_leaves_no_task() -> None:
    heard, serving, before = Heard(), PageTools(), asyncio.all_tasks()
    logs = [EventLog(f"t{number}", "s") for number in range(5)]
    for log in logs:
        log.append(TextDelta("a"))
        heard.page.follow(log._stamp.turn, log.follow(), {})
    heard.page.hold(("serve", "k"), lambda: serving.add("ns", "k", ["insert_cell"]))
    heard.page.hold(("serve", "k"), lambda: serving.add("ns", "k", ["run_cells"]))
    assert serving.tools("ns", "k") == {"run_cells"}
    await asyncio.sleep(0.1)
    said = len(heard.said)
    heard.page.close()
    assert serving.tools("ns", "k") == frozenset()
    for log in logs:
        log.append(END)
    await asyncio.sleep(0.1)
    assert (len(heard.said), heard.page.held_count) == (said, 0)
    assert asyncio.all_tasks() == before


async def test_a_page_holds_so_many_and_no_more() -> None:
    heard = Heard()
    for number in range(MAX_HELD):
        heard.page.hold(("session", str(number)), nothing)
    with pytest.raises(QuotaExceeded):
        heard.page.hold(("session", "more"), nothing)
    with pytest.raises(QuotaExceeded):
        heard.page.follow("t", EventLog("t", "s").follow(), {})
    heard.page.hold(("session", "0"), nothing)  # in its own place
    heard.page.drop(("session", "0"))
    heard.page.hold(("session", "more"), nothing)
    heard.page.close()


async def test_a_store_that_fails_is_told_and_the_page_stays() -> None:
    async def broken() -> AsyncGenerator[Event, None]:
        yield EventNumbering("t", "s")(TextDelta("a"))
        raise StoreError("The disk is gone.")

    heard = Heard()
    heard.page.follow("t", broken(), {"do": "follow", "turn": "t"})
    await asyncio.sleep(0.1)
    assert heard.said[-1]["error"]["code"] == "store_error"
    assert heard.said[-1]["about"] == {"do": "follow", "turn": "t"}
    assert (heard.page.held_count, heard.closed) == (0, [])
    heard.page.close()


async def test_a_server_that_stops_tells_every_page() -> None:
    pages, told = PageConnections(), list[int]()
    for _ in range(3):
        pages.add(Heard().page, lambda code, reason: told.append(code))
    gone = Heard().page
    pages.add(gone, lambda code, reason: told.append(-1))
    pages.remove(gone)
    pages.close()
    assert (told, len(pages)) == ([1001] * 3, 3)


async def test_a_turn_that_can_not_be_told_says_so() -> None:
    async def broken() -> AsyncGenerator[Event, None]:
        yield Event(1, "t", "s", 1, 0.0, TextDelta("a"))
        raise TypeError("of a newer release")

    heard = Heard()
    heard.page.follow("t", broken(), {"do": "follow", "turn": "t"})
    await asyncio.sleep(0.1)
    said = heard.said[-1]
    assert (said["type"], said["about"]["turn"], heard.page.held_count) == ("error", "t", 0)

"""Many pages follow many turns over one connection each and lose it at random; every page gets every event once and in
order. Pages that stop reading cost the server almost no memory; pages that disappear leave nothing behind.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence

import pytest

from tests.jupyter_ext.conftest import ServerFactory
from tests.page import RawPage, connect
from tests.server import AgentServer, Json, followed, start_turn, text_of
from tests.soak.conftest import Soak
from tests.soak.server_state import descriptors, memory_mb, settled_descriptors

TURNS = 6
PAGES = 20
WORDS = "".join(f"{number} " for number in range(2000))
LOUD = "".join(f"{number:07d} " for number in range(200_000))
SCRIPT: list[Json] = [
    {"when": "words", "text": WORDS, "reasoning": "Let me count.", "deltas": 200, "delay": 0.01, "loop": True},
    {"when": "loud", "text": LOUD, "deltas": 2000, "loop": True},
]
STOPPED = 30
"""Pages that read nothing of a loud turn: what it says would be 48 MB for all of them."""
SLACK_MB = 30
SLACK_DESCRIPTORS = 10


class Visitor:
    """One page that reconnects after each loss and remembers which events it has received."""

    def __init__(self, server: AgentServer, turns: Sequence[str], soak: Soak, chance: random.Random) -> None:
        self._server = server
        self._soak = soak
        self._chance = chance
        self.heard: dict[str, list[Json]] = {turn: [] for turn in turns}

    @property
    def left(self) -> list[str]:
        return [turn for turn, heard in self.heard.items() if not heard or heard[-1]["type"] != "turn.finished"]

    async def stay(self) -> None:
        await asyncio.sleep(self._chance.uniform(0, 1))
        while self.left:
            await self._visit(self._chance.choice([1, 3, 20, 100, 100_000]))
            await asyncio.sleep(self._chance.choice([0, 0, 0.05, 0.3]))
        self._soak.counts["pages"] += 1

    async def _visit(self, messages: int) -> None:
        page = await connect(self._server)
        for turn in self.left:
            last = self.heard[turn][-1]["seq"] if self.heard[turn] else 0
            await page.ask("follow", turn=turn, after=last)
            await page.ask("watch", session=f"watched {turn}")
        while self.left and messages:
            message = await page.hear()
            assert message is not None, f"the server closed it: {page.socket.close_code}"
            if "seq" in message:
                self.heard[message["turn"]].append(message)
                messages -= 1
        if self._chance.random() < 0.5:
            page.socket.close()  # without waiting: it vanishes
            self._soak.counts["connections lost"] += 1
        else:
            await page.leave()


async def crowd(server: AgentServer, soak: Soak, number: int) -> None:
    async with server.client() as client:
        turns = [
            (await start_turn(client, "words", session=f"s{index}", max_tool_rounds=0))["turn"]
            for index in range(TURNS)
        ]
        visitors = [
            Visitor(server, turns, soak, random.Random(f"{soak.seed} {number} {index}")) for index in range(PAGES)
        ]
        async with asyncio.TaskGroup() as pages:
            for visitor in visitors:
                pages.create_task(visitor.stay())
        for turn in turns:
            truth = await followed(client, turn)
            assert text_of(truth) == WORDS
            for visitor in visitors:
                assert visitor.heard[turn] == truth, "a page heard something else than who comes late"
            soak.counts["events, each heard once by every page"] += len(truth)


async def connect_idle_pages(server: AgentServer, pid: int, soak: Soak) -> None:
    """Connect pages that request events and do not read. Check that the server holds at most one message for each."""
    pages = [await RawPage.connect(server) for _ in range(STOPPED)]
    async with server.client() as client:
        turn = (await start_turn(client, "loud", session="loud", max_tool_rounds=0))["turn"]
        before = memory_mb(pid)
        for page in pages:
            page.ask("follow", turn=turn)
        whole = await followed(client, turn)
        await asyncio.sleep(1)
        grown = memory_mb(pid) - before
        log_mb = 4 * len(LOUD) / 2**20
        assert grown < SLACK_MB + log_mb, f"{STOPPED} pages that do not read cost {grown:.0f} MB"
        late: list[Json] = []
        while not late or late[-1]["type"] != "turn.finished":
            opcode, payload = await asyncio.wait_for(pages[0].frame(), 60)
            late += [json.loads(payload)] if opcode == 1 else []
        assert text_of(late) == text_of(whole) == LOUD
    for page in pages:
        await page.close()
    soak.counts["pages that did not read"] += STOPPED


@pytest.mark.soak(0.08)
async def test_sockets(soak: Soak, agent_server: ServerFactory) -> None:
    server = await agent_server(SCRIPT)
    pid = server.pid
    await crowd(server, soak, -1)
    await connect_idle_pages(server, pid, soak)
    await asyncio.sleep(2)
    fds = descriptors(pid)
    soak.counts.clear()
    soak.begin()
    number = 0
    while soak.running:
        await crowd(server, soak, number)
        if number % 3 == 0:
            await connect_idle_pages(server, pid, soak)
        number += 1
    left = await settled_descriptors(pid, fds + SLACK_DESCRIPTORS) - fds
    assert left <= SLACK_DESCRIPTORS, f"{left} descriptors were not closed"
    assert await server.stop() == 0
    log = server.log.read_text()
    assert "Task exception was never retrieved" not in log
    assert "Task was destroyed but it is pending" not in log

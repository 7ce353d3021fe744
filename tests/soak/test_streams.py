"""Many followers of many turns join, leave and resume at random; all read the same events."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx
import pytest

from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, Json, follow, followed, start_turn, text_of
from tests.soak.conftest import Soak
from tests.soak.server_state import descriptors, memory_mb, settled_descriptors

TURNS = 4
FOLLOWERS = 25
WORDS = "".join(f"{number} " for number in range(3000))
LONG = "".join(f"{number:07d} " for number in range(400_000))
"""3.2 MB, said three times in a turn with calls: over the bound of a turn's log."""
SCRIPT: list[Json] = [
    {"when": "words", "text": WORDS, "reasoning": "Let me count.", "deltas": 300, "delay": 0.01, "loop": True},
    {
        "when": "shouts",
        "text": LONG,
        "deltas": 2000,
        "calls": [{"name": "python", "arguments": {"code": "print('x' * 100_000)"}}],
        "loop": True,
    },
]
SLACK_MB = 200
SLACK_DESCRIPTORS = 10


@dataclass
class Followed:
    """The events of one turn by number, the same for every follower at every time."""

    turn: str
    events: dict[int, Json] = field(default_factory=dict)

    def see(self, event: Json) -> None:
        known = self.events.setdefault(event["seq"], event)
        assert known == event, f"number {event['seq']} of {self.turn} is two events"


async def visit(server: AgentServer, seen: Followed, soak: Soak, chance: random.Random) -> None:
    """Read a turn as one client that leaves and comes back until it has ended."""
    await asyncio.sleep(chance.uniform(0, 2))
    mine: list[Json] = []
    async with server.client() as client:
        while not mine or mine[-1]["type"] != "turn.finished":
            last = mine[-1]["seq"] if mine else 0
            stay = chance.choice([1, 2, 7, 30, 10_000])
            arrived = len(mine)
            events = (
                follow(client, seen.turn, last_event_id=last)
                if chance.random() < 0.5
                else follow(client, seen.turn, last)
            )
            async for event in events:
                mine.append(event)
                seen.see(event)
                if len(mine) - arrived >= stay:
                    soak.counts["readers that left and came back"] += 1
                    break
            await asyncio.sleep(chance.choice([0, 0, 0.05, 0.5]))
    assert [event["seq"] for event in mine] == list(range(1, len(mine) + 1)), "numbers are not 1, 2, 3"
    assert text_of(mine) == WORDS
    soak.counts["readers"] += 1


async def crowd(server: AgentServer, soak: Soak, number: int) -> None:
    """Run several turns at once, each with FOLLOWERS readers."""
    async with server.client() as client:
        turns = [
            Followed((await start_turn(client, "words", session=f"s{index}", max_tool_rounds=0))["turn"])
            for index in range(TURNS)
        ]
        async with asyncio.TaskGroup() as readers:
            for index in range(TURNS * FOLLOWERS):
                chance = random.Random(f"{soak.seed} {number} {index}")
                readers.create_task(visit(server, turns[index % TURNS], soak, chance))
        for seen in turns:
            late = await followed(client, seen.turn)
            assert late == [seen.events[seq] for seq in sorted(seen.events)], "who comes late reads something else"
            soak.counts["turns"] += 1
            soak.counts["events"] += len(late)


async def shout(server: AgentServer, soak: Soak) -> None:
    """Run a turn larger than its log: numbers have gaps where deltas were joined, but no text is lost or duplicated."""
    async with server.client() as client:
        started = await start_turn(client, "shouts", session="loud", max_tool_rounds=2, where="sandbox")
        steady, restless = await asyncio.gather(
            followed(client, started["turn"]), _restless(server, started["turn"], soak)
        )
        late = await followed(client, started["turn"])
    for events in (steady, restless, late):
        assert text_of(events) == LONG * 3
        numbers = [event["seq"] for event in events]
        assert numbers == sorted(set(numbers))
    soak.counts["turns larger than their log"] += 1


async def _restless(server: AgentServer, turn: str, soak: Soak) -> list[Json]:
    mine: list[Json] = []
    while not mine or mine[-1]["type"] != "turn.finished":
        arrived = len(mine)
        async with server.client() as client:
            async for event in follow(client, turn, mine[-1]["seq"] if mine else 0):
                mine.append(event)
                if len(mine) - arrived >= 5:
                    break
        soak.counts["readers that left and came back"] += 1
    return mine


async def slam(server: AgentServer, turns: Sequence[str], soak: Soak) -> None:
    """Drop connections without closing them, before, during and after the first byte."""
    for turn in turns:
        for seconds in (0.001, 0.02, 0.1):
            try:
                async with asyncio.timeout(seconds), server.client() as client:
                    await followed(client, turn)
            except (TimeoutError, httpx.TransportError):
                soak.counts["connections dropped"] += 1


@pytest.mark.soak(0.12)
async def test_streams(soak: Soak, agent_server: ServerFactory) -> None:
    server = await agent_server(SCRIPT)
    pid = server.pid
    await crowd(server, soak, -1)
    await shout(server, soak)  # starts the sandbox's processes, which stay
    await asyncio.sleep(2)
    fds, before_mb, before_events = descriptors(pid), memory_mb(pid), soak.counts["events"]
    soak.counts.clear()
    soak.begin()
    number = 0
    while soak.running:
        await crowd(server, soak, number)
        if number % 5 == 0:
            await shout(server, soak)
        async with server.client() as client:
            started = await start_turn(client, "words", session="dropped", max_tool_rounds=0)
        await slam(server, [started["turn"]] * 10, soak)
        number += 1
    assert before_events
    left = await settled_descriptors(pid, fds + SLACK_DESCRIPTORS) - fds
    assert left <= SLACK_DESCRIPTORS, f"{left} descriptors were not closed"
    # Logs stay for ten minutes after their turn: what they hold is no leak, twice as much would be.
    logs_mb = (
        (soak.counts["turns"] * len(WORDS) + soak.counts["turns larger than their log"] * 3 * len(LONG)) * 4 / 2**20
    )
    grown = memory_mb(pid) - before_mb
    assert grown < SLACK_MB + logs_mb, f"the server grew by {grown:.0f} MB, with {logs_mb:.0f} MB of logs"
    soak.counts["MB that the server grew"] = int(grown)
    assert await server.stop() == 0

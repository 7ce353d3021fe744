"""Three real servers on one PostgreSQL behind a real reverse proxy, while servers are killed: the clients resume after
the number of the last event that they received. ``pytest -s`` prints what happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from jupyter_ext.turns.stored_events import GONE
from tests.server import Json, follow, followed, text_of
from tests.sessions.log.proxied_servers import HAPROXY, ProxiedServers
from tests.sessions.log.servers import Postgres

pytestmark = pytest.mark.stores
WORDS = "".join(f"{number} " for number in range(60))
SCRIPT = [{"text": WORDS, "deltas": 60, "delay": 0.1, "loop": True}]
AWAY = (502, 503, 504)
"""The answers of a proxy whose server is not there, and of a server that stops."""
RETRY_S = 0.2
KNOWN_S = 60.0
END_S = 120.0
"""Seconds within which every turn must have ended for its clients."""


@dataclass
class Run:
    """What the clients of one run did and received. ``lengths`` has, for each number of an event of a turn, its type
    and the length of the turn's text up to it, which must be the same for every client.

    A client whose first event comes after the turn's server has died gets events that are rebuilt from the store, with
    new numbers. Therefore only clients with the same first event are compared.
    """

    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    lengths: dict[tuple[str, float, int], tuple[str, int]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)

    def see(self, turn: str, first: float, event: Json, text: int) -> None:
        if event["type"] == "turn.finished":
            text = 0  # what a dead server had not published is lost for the client that had not received it
        known = self.lengths.setdefault((turn, first, event["seq"]), (event["type"], text))
        assert known == (event["type"], text), f"event {event['seq']} of {turn} is two events"


@pytest.mark.parametrize(
    ("streams", "turns", "kills"), [(10, 1, 2), pytest.param(50, 4, 12, marks=pytest.mark.slow)], ids=["short", "long"]
)
@pytest.mark.timeout(600)
async def test_no_event_is_lost_repeated_or_renumbered_when_servers_behind_a_proxy_are_killed(
    postgres: Postgres, tmp_path: Path, streams: int, turns: int, kills: int
) -> None:
    run, began = Run(random.Random(16)), time.monotonic()
    proxied = ProxiedServers(tmp_path, postgres.fresh(), SCRIPT)
    with proxied.running():
        async with proxied.client() as client:
            reading = [asyncio.create_task(converse(client, run, f"s{number}", turns)) for number in range(streams)]
            killing = asyncio.create_task(kill_servers(proxied, run, kills))
            try:
                await asyncio.gather(*reading)
                await killing
            finally:
                for task in (killing, *reading):
                    task.cancel()
        seconds, proxy = time.monotonic() - began, "HAProxy" if HAPROXY else "the small proxy"
        print(f"{streams} streams through {proxy} in {seconds:.0f} s: {dict(sorted(run.counts.items()))}", flush=True)
        for port in proxied.ports:
            async with proxied.client(port) as client:
                await asyncio.gather(*(check_stored(client, *ended) for ended in run.states.items()))
    assert run.counts["kills"] == kills
    assert run.counts["committed"]


async def kill_servers(proxied: ProxiedServers, run: Run, kills: int) -> None:
    """Kill one random server after the other, and restart it a moment later."""
    for _ in range(kills):
        await asyncio.sleep(run.chance.uniform(0.5, 3))
        server = run.chance.choice(proxied.servers)
        assert server.process is not None
        server.process.kill()
        await asyncio.to_thread(server.process.wait)
        run.counts["kills"] += 1
        await asyncio.sleep(run.chance.uniform(0, 2))
        await asyncio.to_thread(server.start)


async def converse(client: httpx.AsyncClient, run: Run, session: str, turns: int) -> None:
    """Run turns of one session, one after the other. Each is followed by two clients."""
    for number in range(turns):
        turn = await begin_turn(client, run, session, f"{session}-{number}")
        ends = await asyncio.gather(*(follow_to_end(client, run, turn) for _ in range(2)))
        assert ends[0] == ends[1]
        run.states[turn] = ends[0]
        run.counts["turns"] += 1
        run.counts[ends[0]] += 1


async def begin_turn(client: httpx.AsyncClient, run: Run, session: str, key: str) -> str:
    """Start a turn. A request without an answer is repeated with its idempotency key."""
    body, headers = {"prompt": "Count.", "session": session}, {"Idempotency-Key": key}
    until = time.monotonic() + END_S
    while True:
        with contextlib.suppress(httpx.TransportError):
            reply = await client.post("agent/v1/turns", json=body, headers=headers)
            if reply.status_code == 202:
                return str(reply.json()["turn"])
            assert reply.status_code in AWAY, reply.text
        assert time.monotonic() < until, f"the turn {key} does not begin"
        run.counts["repeated requests"] += 1
        await asyncio.sleep(RETRY_S)


async def follow_to_end(client: httpx.AsyncClient, run: Run, turn: str) -> str:
    """Follow a turn to its end over connections that break, or that the client closes. Return its state."""
    last, first = 0, 0.0
    text, is_cut = "", False
    until = time.monotonic() + END_S
    while True:
        assert time.monotonic() < until, f"{turn} does not end after event {last}"
        async with contextlib.aclosing(some_events(client, run, turn, last)) as events:
            async for event in events:
                assert event["seq"] > last, f"event {event['seq']} of {turn} came after {last}"
                first, last = first or round(event["time"], 2), event["seq"]
                text += text_of([event])
                assert WORDS.startswith(text), f"text of {turn} is missing or repeated: {text[-60:]!r}"
                is_cut = is_cut or (event["type"] == "notice" and event["data"]["text"] == GONE)
                run.counts["events"] += 1
                if not is_cut:
                    run.see(turn, first, event, len(text))
                if event["type"] == "turn.finished":
                    state = str(event["data"]["state"])
                    assert state == "interrupted" or (state, is_cut or text == WORDS) == ("committed", True), event
                    return state
        run.counts["resumed streams"] += 1


async def some_events(client: httpx.AsyncClient, run: Run, turn: str, after: int) -> AsyncGenerator[Json]:
    """Yield events over one connection: until it breaks, or for a random number of events."""
    left = run.chance.randint(1, 60)
    try:
        async with contextlib.aclosing(follow(client, turn, after, away=AWAY)) as events:  # type: ignore[type-var]
            async for event in events:
                yield event
                left -= 1
                if not left:
                    return
    except httpx.TransportError:
        run.counts["broken connections"] += 1
    await asyncio.sleep(RETRY_S)


async def check_stored(client: httpx.AsyncClient, turn: str, state: str) -> None:
    """Check that each server knows how the turn ended and has the whole answer of a committed turn. A server that
    follows a turn of a dead server learns of its end with its next request for the turn.
    """
    until = time.monotonic() + KNOWN_S
    while (known := (await client.get(f"agent/v1/turns/{turn}")).json()["state"]) != state:
        assert (known, time.monotonic() < until) == ("open", True), f"{turn} is {known}, and {state} for its clients"
        await asyncio.sleep(RETRY_S)
    if state == "committed":
        assert text_of(await followed(client, turn)) == WORDS

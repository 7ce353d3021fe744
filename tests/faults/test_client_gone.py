"""Tests clients that connect and disconnect: the turn and the numbers of its events do not change."""

from __future__ import annotations

from tests.jupyter_ext.conftest import ServerFactory
from tests.server import Json, follow, followed, start_turn, text_of

TEXT = "".join(f"{number}, " for number in range(1500))


async def test_a_client_that_left_and_came_back_has_every_event_once(agent_server: ServerFactory) -> None:
    server = await agent_server([{"text": TEXT, "deltas": 600, "delay": 0.005, "loop": True}])
    async with server.client() as client:
        started = await start_turn(client, "count")
        seen: list[Json] = []
        joins = 0
        while not seen or seen[-1]["type"] != "turn.finished":
            joins += 1
            last = seen[-1]["seq"] if seen else 0
            got = 0
            async with server.client() as visitor:  # a connection of its own each time
                async for event in follow(visitor, started["turn"], last_event_id=last):
                    seen.append(event)
                    got += 1
                    if got == 5:
                        break
        assert joins > 5, "the client did not leave while the turn ran"
        assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))
        assert text_of(seen) == TEXT
        assert seen == await followed(client, started["turn"])

from __future__ import annotations

from tests.jupyter_ext.conftest import ServerFactory
from tests.server import followed, start_turn, text_of


async def test_a_turn_runs_through_http_and_its_answer_is_stored(agent_server: ServerFactory) -> None:
    server = await agent_server([{"text": "Four words of answer.", "deltas": 4}])
    async with server.client() as client:
        started = await start_turn(client, "hello")
        events = await followed(client, started["turn"])
        assert text_of(events) == "Four words of answer."
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert events[-1]["type"] == "turn.finished"
        assert events[-1]["data"]["state"] == "committed"
        items = (await client.get(f"agent/v1/sessions/{started['session']}/items")).json()["items"]
        assert [(item["message"]["role"], item["message"]["content"]) for item in items] == [
            ("user", "hello"),
            ("assistant", "Four words of answer."),
        ]

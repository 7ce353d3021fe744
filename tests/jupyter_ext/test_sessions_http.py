"""Sessions by their id, over HTTP."""

from __future__ import annotations

from tests.server import AgentServer, followed, start_turn


async def test_a_turn_goes_to_the_session_that_the_path_names(server: AgentServer) -> None:
    async with server.client() as client:
        reply = await client.post("agent/v1/sessions/by%20path/turns", json={"prompt": "hello"})
        assert reply.status_code == 202
        assert reply.json()["session"] == "by path"
        await followed(client, reply.json()["turn"])
        assert (await client.get("agent/v1/sessions/by%20path")).json()["turns"] == 1


async def test_a_body_that_names_another_session_than_the_path_is_refused(server: AgentServer) -> None:
    async with server.client() as client:
        reply = await client.post("agent/v1/sessions/one/turns", json={"prompt": "hello", "session": "two"})
        assert reply.status_code == 400
        assert reply.json()["error"]["code"] == "invalid_request"


async def test_deleting_is_idempotent_and_takes_the_history_along(server: AgentServer) -> None:
    async with server.client() as client:
        turn = await start_turn(client, "hello", session="short lived")
        await followed(client, turn["turn"])
        told = [(await client.delete("agent/v1/sessions/short%20lived")).json()["deleted"] for _ in range(2)]
        assert told == [True, False]
        assert (await client.get("agent/v1/sessions/short%20lived/items")).status_code == 404

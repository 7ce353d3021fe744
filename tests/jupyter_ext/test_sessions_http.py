"""Tests sessions by their id, over HTTP."""

from __future__ import annotations

import httpx
import pytest

from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, followed, start_turn


async def test_a_turn_goes_to_the_session_that_the_path_names(api: httpx.AsyncClient) -> None:
    reply = await api.post("agent/v1/sessions/by%20path/turns", json={"prompt": "hello"})
    assert reply.status_code == 202
    assert reply.json()["session"] == "by path"
    await followed(api, reply.json()["turn"])
    assert (await api.get("agent/v1/sessions/by%20path")).json()["turns"] == 1


async def test_a_body_that_names_another_session_than_the_path_is_refused(api: httpx.AsyncClient) -> None:
    reply = await api.post("agent/v1/sessions/one/turns", json={"prompt": "hello", "session": "two"})
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "invalid_request"


async def test_deleting_is_idempotent_and_takes_the_history_along(api: httpx.AsyncClient) -> None:
    turn = await start_turn(api, "hello", session="short lived")
    await followed(api, turn["turn"])
    told = [(await api.delete("agent/v1/sessions/short%20lived")).json()["deleted"] for _ in range(2)]
    assert told == [True, False]
    assert (await api.get("agent/v1/sessions/short%20lived/items")).status_code == 404


async def test_older_turns_are_summarised_on_demand_and_the_summary_is_taken_back(agent_server: ServerFactory) -> None:
    script = [
        {"when": "Write the summary of all this now", "text": "They counted.", "loop": True},
        {"text": "ok", "loop": True},
    ]
    async with (await agent_server(script)).client() as client:
        for number in range(4):
            turn = await start_turn(client, f"count {number}", session="long")
            await followed(client, turn["turn"])
        made = (await client.post("agent/v1/sessions/long/compact", json={})).json()["summary"]
        assert (made["text"], made["model"], made["reason"]) == ("They counted.", "scripted", "asked for")
        assert made["usage"]["completion_tokens"] == 2
        assert (await client.get("agent/v1/sessions/long/compact")).json()["summaries"] == [made]
        usage = (await client.get("agent/v1/sessions/long/usage")).json()
        assert (usage["total"]["turns"], usage["total"]["summaries"]) == (4, 1)
        last = (await client.get(f"agent/v1/turns/{turn['turn']}")).json()["usage"]
        assert usage["context"]["tokens"] == last["prompt_tokens"] + last["completion_tokens"]
        assert usage["context"]["window"] == 32_768
        named = (await client.get("agent/v1/sessions")).json()["sessions"]
        assert [(one["id"], one["notebooks"]) for one in named] == [("long", [])]
        assert (await client.delete("agent/v1/sessions/long/compact")).json()["summary"] == made
        assert (await client.delete("agent/v1/sessions/long/compact")).json() == {"summary": None}
        assert len((await client.get("agent/v1/sessions/long/items")).json()["items"]) == 8


async def test_a_summary_waits_for_no_turn(api: httpx.AsyncClient) -> None:
    turn = await start_turn(api, "hang", session="busy one")
    reply = await api.post("agent/v1/sessions/busy%20one/compact", json={})
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "session_busy")
    await api.post(f"agent/v1/turns/{turn['turn']}/cancel", json={})


async def test_a_key_that_was_typed_reaches_the_model_and_nothing_else(agent_server: ServerFactory) -> None:
    key = "sk-" + "proj-abcdEFGH0123ijklMNOP"
    server = await agent_server([{"when": key, "text": f"I use {key}.", "deltas": 9}, {"text": "not given"}])
    async with server.client() as client:
        turn = await start_turn(client, f"log in with {key}", session="keys")
        events = await followed(client, turn["turn"])
        told = "".join(event["data"]["text"] for event in events if event["type"] == "text.delta")
        assert told.endswith("[REDACTED:openai_key].")
        assert key[4:] not in told
        items = (await client.get("agent/v1/sessions/keys/items")).text
        title = (await client.get("agent/v1/sessions/keys")).json()["title"]
    assert key not in items
    assert title == "log in with [REDACTED:openai_key]"
    places = [path for path in server.directory.rglob("*") if path.is_file() and path.name != "script.json"]
    assert places
    assert not [path for path in places if key.encode() in path.read_bytes()]


async def test_a_name_is_looked_for_within_title_tag_or_id_not_across_them(api: httpx.AsyncClient) -> None:
    await api.post("agent/v1/sessions", json={"id": "beta one", "title": "Alpha"})

    async def named(name: str) -> list[str]:
        found = (await api.get("agent/v1/sessions", params={"name": name})).json()["sessions"]
        return [session["id"] for session in found]

    assert await named("ALPHA") == await named("beta one") == ["beta one"]
    assert await named("alpha beta") == []


async def test_a_store_that_was_moved_away_is_said_and_not_made_anew(
    server: AgentServer, api: httpx.AsyncClient
) -> None:
    path = server.directory / "data" / "sessions.db"
    turn = await start_turn(api, "hello", session="kept")
    await followed(api, turn["turn"])
    path.rename(path.with_name("elsewhere.db"))
    health = (await api.get("agent/v1/health")).json()
    assert health["status"] == "degraded"
    assert "moved away or deleted" in health["store"]["state"]
    for reply in (
        await api.get("agent/v1/sessions"),
        await api.get("agent/v1/sessions/kept"),
        await api.post("agent/v1/sessions", json={"title": "new"}),
        await api.post("agent/v1/turns", json={"prompt": "hello"}),
        await api.delete("agent/v1/sessions/kept"),
    ):
        assert reply.status_code >= 500
        assert "moved away or deleted" in reply.json()["error"]["message"]
    assert not path.exists()
    path.with_name("elsewhere.db").rename(path)
    assert (await api.get("agent/v1/health")).json()["store"]["state"] == "ok"
    assert (await api.get("agent/v1/sessions/kept")).json()["turns"] == 1


@pytest.mark.parametrize("store", ["sqlite", "files"])
async def test_a_new_server_says_what_is_missing_too(agent_server: ServerFactory, store: str) -> None:
    """A server that was killed left a journal; its file is gone when the next one starts. A store of files is moved
    away while that one runs."""
    server = await agent_server(name="here", traits={"store": store})
    data = server.directory / "data"
    async with server.client() as client:
        await followed(client, (await start_turn(client, "hello", session="kept"))["turn"])
    await server.kill()
    if store == "sqlite":
        (data / "sessions.db").rename(data / "elsewhere")
    await server.start(answer=500 if store == "sqlite" else 404)
    async with server.client() as client:
        if store == "files":
            assert (await client.get("agent/v1/health")).json()["store"]["state"] == "ok"
            (data / "sessions").rename(data / "elsewhere")
        health = (await client.get("agent/v1/health")).json()
        assert health["status"] == "degraded"
        said = "sessions.db-wal beside it holds" if store == "sqlite" else "moved away or deleted"
        assert said in health["store"]["state"]
        for reply in (
            await client.get("agent/v1/sessions/kept"),
            await client.post("agent/v1/turns", json={"prompt": "hello"}),
        ):
            assert reply.status_code >= 500
            assert said in reply.json()["error"]["message"]
        place = data / ("sessions.db" if store == "sqlite" else "sessions")
        assert not place.exists()
        (data / "elsewhere").rename(place)
        assert (await client.get("agent/v1/sessions/kept")).json()["turns"] == 1

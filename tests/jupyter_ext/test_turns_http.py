"""Tests turns over HTTP, on a server in its own process."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.jupyter_ext.conftest import HANG, HELLO, SLOW, ServerFactory
from tests.server import AgentServer, Json, follow, followed, items_of, start_turn, text_of, wait_for_event


def end_of(events: list[Json]) -> tuple[str, str]:
    assert events[-1]["type"] == "turn.finished"
    return events[-1]["data"]["state"], events[-1]["data"]["reason"]


async def test_a_turn_runs_through_http_and_its_answer_is_stored(api: httpx.AsyncClient) -> None:
    started = await start_turn(api, "hello")
    events = await followed(api, started["turn"])
    assert text_of(events) == "Hello."
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert end_of(events) == ("committed", "")
    assert await items_of(api, started["session"]) == [("user", "hello"), ("assistant", "Hello.")]


async def test_a_client_that_was_lost_resumes_without_a_gap_or_a_repeat(api: httpx.AsyncClient) -> None:
    turn = (await start_turn(api, "slow"))["turn"]
    before: list[Json] = []
    async for event in follow(api, turn):
        before.append(event)
        if len(before) == 8:
            break
    await asyncio.sleep(0.3)
    after = [event async for event in follow(api, turn, last_event_id=before[-1]["seq"])]
    assert text_of([*before, *after]) == SLOW["text"]
    assert end_of(after) == ("committed", "")
    whole = await followed(api, turn)
    assert text_of(whole) == SLOW["text"]


async def test_a_turn_that_is_refused_leaves_no_session_behind(api: httpx.AsyncClient) -> None:
    body = {"prompt": "read", "session": "for a refused turn", "inputs": ["file_of_nobody"]}
    refused = await api.post("agent/v1/turns", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "file_not_found")
    assert (await api.get("agent/v1/sessions/for%20a%20refused%20turn")).status_code == 404


async def test_a_reader_that_leaves_does_not_end_the_turn(server: AgentServer) -> None:
    async with server.client() as client:
        turn = (await start_turn(client, "slow"))["turn"]
        async for _ in follow(client, turn):
            break
    async with server.client() as client:
        assert end_of(await followed(client, turn)) == ("committed", "")


async def test_two_readers_see_the_same_numbering(server: AgentServer) -> None:
    async with server.client() as one, server.client() as two:
        turn = (await start_turn(one, "slow"))["turn"]
        early = asyncio.create_task(followed(one, turn))
        await asyncio.sleep(0.7)
        late = await followed(two, turn)
        assert await early == late


async def test_a_cancelled_turn_keeps_its_partial_answer_and_the_reason(api: httpx.AsyncClient) -> None:
    started = await start_turn(api, "hang")
    await wait_for_event(api, started["turn"], "text.delta")
    path = f"agent/v1/turns/{started['turn']}/cancel"
    assert (await api.post(path, json={"reason": "not now"})).json() == {"state": "cancelled"}
    assert (await api.post(path, json={"reason": "again"})).json() == {"state": "cancelled"}
    assert end_of(await followed(api, started["turn"])) == ("cancelled", "not now")
    assert await items_of(api, started["session"]) == [("user", "hang"), ("assistant", "It begins")]
    seen = (await api.get(f"agent/v1/turns/{started['turn']}")).json()
    assert (seen["state"], seen["reason"], seen["running"]) == ("cancelled", "not now", False)


async def test_turns_of_a_session_run_one_at_a_time_in_the_order_they_came(api: httpx.AsyncClient) -> None:
    first = await start_turn(api, "hang")
    session = first["session"]
    await wait_for_event(api, first["turn"], "text.delta")
    second = await start_turn(api, "second", session=session)
    third = await start_turn(api, "third", session=session)
    refused = await api.post("agent/v1/turns", json={"prompt": "now", "session": session, "queue": False})
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "session_busy"
    other = await start_turn(api, "elsewhere")
    assert end_of(await followed(api, other["turn"])) == ("committed", "")
    await api.post(f"agent/v1/turns/{first['turn']}/cancel", json={})
    queued = await followed(api, third["turn"])
    positions = [event["data"]["position"] for event in queued if event["type"] == "queued"]
    assert positions == [2, 1]
    assert end_of(queued) == ("committed", "")
    said = [text for role, text in await items_of(api, session) if role == "user"]
    assert said == ["hang", "second", "third"]
    assert end_of(await followed(api, second["turn"])) == ("committed", "")


async def test_a_queued_turn_can_be_cancelled_and_leaves_nothing_behind(api: httpx.AsyncClient) -> None:
    first = await start_turn(api, "hang")
    await wait_for_event(api, first["turn"], "text.delta")
    second = await start_turn(api, "never", session=first["session"])
    reply = await api.post(f"agent/v1/turns/{second['turn']}/cancel", json={"reason": "changed my mind"})
    assert reply.json() == {"state": "cancelled"}
    assert end_of(await followed(api, second["turn"])) == ("cancelled", "changed my mind")
    await api.post(f"agent/v1/turns/{first['turn']}/cancel", json={})
    assert ("user", "never") not in await items_of(api, first["session"])


async def test_a_server_killed_in_a_turn_leaves_it_closed_as_interrupted_and_the_session_goes_on(
    agent_server: ServerFactory,
) -> None:
    server = await agent_server([HANG, HELLO])
    await server.save_notebook("analysis.ipynb")
    async with server.client() as client:
        session = (await client.post("agent/v1/sessions?path=analysis.ipynb", json={})).json()["id"]
        broken = await start_turn(client, "hang", session=session)
        await wait_for_event(client, broken["turn"], "text.delta")
    await server.kill()
    await server.start()
    async with server.client() as client:
        bound = (await client.get("agent/v1/binding?path=analysis.ipynb")).json()
        assert bound["session"]["id"] == session
        found = (await client.get(f"agent/v1/turns/{broken['turn']}")).json()
        assert (found["state"], found["running"]) == ("interrupted", False)
        assert (await followed(client, broken["turn"]))[-1]["data"]["state"] == "interrupted"
        resumed = await followed(client, broken["turn"], after=7)
        assert [(event["seq"], event["type"]) for event in resumed] == [(8, "notice"), (9, "turn.finished")]
        again = await start_turn(client, "hello", session=session)
        assert end_of(await followed(client, again["turn"])) == ("committed", "")


async def test_a_turn_that_waits_for_another_server_begins_when_that_one_ends(agent_server: ServerFactory) -> None:
    one = await agent_server([HANG, HELLO], "one")
    two = await agent_server([HELLO], "two", data_dir=one.directory / "data")
    async with one.client() as first, two.client() as second:
        running = await start_turn(first, "hang")
        session = running["session"]
        await wait_for_event(first, running["turn"], "text.delta")
        refused = await second.post("agent/v1/turns", json={"prompt": "now", "session": session, "queue": False})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "session_busy")
        waiting = await start_turn(second, "after you", session=session)
        told = await wait_for_event(second, waiting["turn"], "queued")
        assert "another server" in told["data"]["reason"]
        await first.post(f"agent/v1/turns/{running['turn']}/cancel", json={})
        assert end_of(await followed(second, waiting["turn"])) == ("committed", "")


async def test_two_servers_with_an_untitled_notebook_each_keep_apart_and_one_restarts_without_the_other_noticing(
    agent_server: ServerFactory,
) -> None:
    one = await agent_server([SLOW], "one")
    two = await agent_server([HELLO], "two", data_dir=one.directory / "data")
    kernels = [await server.start_kernel("Untitled.ipynb") for server in (one, two)]
    async with one.client() as first:
        running = await start_turn(first, "slow", kernel=kernels[0])
        async with two.client() as second:
            other = await start_turn(second, "hello", kernel=kernels[1])
            assert running["notebook"] == other["notebook"] == "Untitled.ipynb"
            assert running["session"] != other["session"]
        assert await two.stop() == 0
        await two.start()
        events = await followed(first, running["turn"])
        assert end_of(events) == ("committed", "")
        assert text_of(events) == SLOW["text"]


async def test_live_code_is_claimed_once_and_its_output_reaches_the_readers(api: httpx.AsyncClient) -> None:
    turn = (await start_turn(api, "live", client_tools=["python"], answers=["python.live"]))["turn"]
    asked = await wait_for_event(api, turn, "approval.required")
    assert asked["data"]["code"] == "1 + 1"
    approval = f"agent/v1/agent/approvals/{asked['data']['approval']}"
    assert (await api.post(approval, json={"decision": "approve"})).json()["status"] == "resolved"
    offered = await wait_for_event(api, turn, "call.offered")
    call = offered["data"]["call"]
    claims = f"agent/v1/turns/{turn}/claims"
    claim = (await api.post(claims, json={"call": call, "client": "test"})).json()
    assert (claim["name"], claim["arguments"]) == ("python", {"code": "1 + 1"})
    assert (await api.post(claims, json={"call": call, "client": "late"})).status_code == 409
    token = {"token": claim["token"]}
    said = {"action": "output", "stream": "stdout", "text": "counting\n", **token}
    assert (await api.post(f"{claims}/{call}", json=said)).json() == {}
    assert (await api.post(f"{claims}/{call}", json={"action": "renew", "token": "wrong"})).status_code == 409
    done = {"action": "finish", "status": "success", "text": "2", "media": [], "shown": True, **token}
    assert (await api.post(f"{claims}/{call}", json=done)).json() == {}
    events = await followed(api, turn)
    assert text_of(events) == "Hello."
    outputs = [event["data"] for event in events if event["type"] in ("call.output", "call.finished")]
    assert [output["text"] for output in outputs] == ["counting\n", "2"]


async def test_a_turn_gives_no_more_than_twenty_deltas_a_second(server: AgentServer) -> None:
    async with server.client() as client:
        turn = (await start_turn(client, "fast"))["turn"]
        events = await followed(client, turn)
    times = [event["time"] for event in events if event["type"] == "text.delta"]
    assert text_of(events) == "x" * 600
    # An event that is late shortens the time to the next one, and the last one comes at once.
    assert len(times) - 2 <= 20 * (times[-1] - times[0])


@pytest.mark.slow
async def test_a_silent_stream_shows_that_it_lives(api: httpx.AsyncClient) -> None:
    turn = (await start_turn(api, "hang"))["turn"]
    async with api.stream("GET", f"agent/v1/turns/{turn}/events") as reply:
        assert reply.headers["X-Accel-Buffering"] == "no"
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        async with asyncio.timeout(40):
            async for line in reply.aiter_lines():
                if line == ": keep-alive":
                    break
    await api.post(f"agent/v1/turns/{turn}/cancel", json={})


async def test_the_mistakes_of_a_client_are_told_in_words(server: AgentServer) -> None:
    cases: list[tuple[bytes, str]] = [
        (b"{", "body"),
        (b"[]", "body"),
        (b'{"prompt": ""}', "prompt"),
        (b'{"prompt": "x", "wherever": 1}', "wherever"),
        (b'{"prompt": "x", "where": "moon"}', "where"),
        (b'{"prompt": "x", "sampling": {"temperature": -1}}', "temperature"),
        (b'{"prompt": "x", "session": "a\\u0000b"}', "session id"),
        (b'{"prompt": "\xff"}', "body"),
    ]
    async with server.client() as client:
        for body, word in cases:
            reply = await client.post("agent/v1/turns", content=body)
            assert reply.status_code == 400, body
            assert reply.json()["error"]["code"] == "invalid_request"
            assert word in reply.json()["error"]["message"], reply.text
        assert (await client.post("agent/v1/turns", json={"prompt": "x", "kernel": "none"})).status_code == 404
        assert (await client.post("agent/v1/turns", json={"prompt": "x", "model": "gpt-9"})).status_code == 404
        assert (await client.get("agent/v1/turns/none/events?after=x")).status_code == 400
        refused = await client.get("agent/v1/sessions?limit=-1")
        assert refused.status_code == 400
        told = "limit must be a whole number of 0 or more, of at most 15 digits, not '-1'."
        assert refused.json()["error"]["message"] == told
        assert (await client.put("agent/v1/turns", json={})).status_code == 405
        assert (await client.post("agent/v1/turns", content=b" " * (33 << 20))).status_code == 413
        named = await client.get("agent/v1/sessions/none", headers={"X-Request-ID": "mine-1"})
        assert named.json()["error"] | {"message": ""} == {
            "code": "session_not_found",
            "message": "",
            "hint": "",
            "request_id": "mine-1",
            "details": {},
        }
    assert "Traceback" not in server.log.read_text()


async def test_a_server_that_is_stopped_closes_its_turns_and_leaves_no_process(agent_server: ServerFactory) -> None:
    server = await agent_server([HANG, HELLO])
    kernel = await server.start_kernel("a.ipynb")
    assert await server.run_in_kernel(kernel, "print('up')") == "up\n"
    async with server.client() as client:
        started = await start_turn(client, "hang")
        await wait_for_event(client, started["turn"], "text.delta")
    assert await server.stop() == 0
    assert server.processes() == []
    log = server.log.read_text()
    assert "Traceback" not in log
    assert "was destroyed but it is pending" not in log
    await server.start()
    async with server.client() as client:
        found = (await client.get(f"agent/v1/turns/{started['turn']}")).json()
        assert (found["state"], found["reason"]) == ("cancelled", "the server was stopped")


async def test_a_running_turn_counts_as_activity_of_the_server(api: httpx.AsyncClient) -> None:
    started = await start_turn(api, "hang")

    async def after(pause_s: float) -> str:
        await asyncio.sleep(pause_s)
        return str((await api.get("api/status?no_track_activity=1")).json()["last_activity"])

    async with asyncio.timeout(60):
        for _ in range(2):  # the request that started the turn is activity too
            last = await after(0)
            while await after(0.5) == last:
                pass
        await api.post(f"agent/v1/turns/{started['turn']}/cancel", json={})
        last = await after(1.5)
        while (now := await after(2.5)) != last:
            last = now

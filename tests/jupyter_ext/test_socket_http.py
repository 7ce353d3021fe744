"""Tests the WebSocket of a page on a real server."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from tornado.httpclient import HTTPClientError

from tests.jupyter_ext.conftest import ServerFactory
from tests.narrowing import not_none
from tests.page import Page, RawPage, connect, page
from tests.server import KERNEL_HEADER, TOKEN, AgentServer, Json, followed, start_turn, text_of

UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


async def session_of(client: httpx.AsyncClient, id: str) -> str:
    reply = await client.post("agent/v1/sessions", json={"id": id, "bind": False})
    reply.raise_for_status()
    return id


async def test_one_page_follows_many_turns_each_event_once_and_in_order(api: httpx.AsyncClient, mine: Page) -> None:
    turns = [(await start_turn(api, "fast", session=f"many-{number}"))["turn"] for number in range(4)]
    for turn in turns:
        await mine.ask("follow", turn=turn)
    for turn in turns:
        if not any(said.get("turn") == turn and said["type"] == "turn.finished" for said in mine.said):
            await mine.until("turn.finished", turn=turn)
    for turn in turns:
        heard = mine.events(turn)
        assert heard == await followed(api, turn)
        assert [event["seq"] for event in heard] == list(range(1, len(heard) + 1))


async def test_a_lost_connection_goes_on_where_it_was(server: AgentServer, api: httpx.AsyncClient) -> None:
    turn = (await start_turn(api, "slow", session="resumed"))["turn"]
    async with page(server) as first:
        await first.ask("follow", turn=turn)
        for _ in range(6):
            await first.hear()
    async with page(server) as second:
        await second.ask("follow", turn=turn, after=first.said[-1]["seq"])
        rest = await second.turn(turn)
    assert [*first.events(turn), *rest] == await followed(api, turn)


async def test_a_turn_may_be_followed_again_and_left_at_any_time(api: httpx.AsyncClient, mine: Page) -> None:
    turn = (await start_turn(api, "slow", session="again"))["turn"]
    for _ in range(50):
        await mine.ask("follow", turn=turn)
        await mine.ask("unfollow", turn=turn)
    await mine.ask("follow", turn=turn)
    await mine.until("turn.finished", turn=turn)
    last = mine.said[max(at for at, said in enumerate(mine.said) if said.get("seq") == 1) :]
    assert [said["seq"] for said in last] == list(range(1, len(last) + 1))
    assert last == await followed(api, turn)


async def test_watching_tells_how_it_stands_and_what_changes(api: httpx.AsyncClient, mine: Page) -> None:
    session = await session_of(api, "watched")
    await mine.ask("watch", session=session)
    first = await mine.until("watching", session=session)
    assert (first["branch"], first["running"]) == ("main", [])
    turn = (await start_turn(api, "hello", session=session))["turn"]
    assert (await mine.until("turn.opened"))["turn"] == turn
    assert (await mine.until("turn.closed"))["state"] == "committed"
    at = f"agent/v1/sessions/{session}"
    await api.patch(at, json={"title": "New"})
    await api.patch(at, json={"tags": ["a"]})
    await api.post(f"{at}/branches", json={"name": "other"})
    await api.put(f"{at}/branch", json={"name": "main"})
    await api.delete(f"{at}/branches/other")
    await api.post(f"{at}/undo", json={})
    await api.post(f"{at}/compact", json={})
    await api.post(f"{at}/clear-outputs", json={"cells": ["c"]})
    await api.post(f"{at}/clear", json={})
    await api.delete(at)
    await mine.until("session.changed", what="deleted")
    told = [said["what"] for said in mine.said if said["type"] == "session.changed"]
    assert told == [
        *("title", "described", "branch", "branch", "branch"),
        *("undone", "compacted", "outputs", "cleared", "deleted"),
    ]
    await mine.ask("watch", session=session)
    assert (await mine.until("watching"))["revision"] is None


async def test_what_did_not_happen_is_no_news(api: httpx.AsyncClient, mine: Page) -> None:
    session = await session_of(api, "unchanged")
    await mine.ask("watch", session=session)
    await api.put(f"agent/v1/sessions/{session}/branch", json={"name": "none"})
    await mine.ask("unwatch", session=session)
    await mine.ask("ping")
    await mine.until("pong")
    await api.patch(f"agent/v1/sessions/{session}", json={"title": "T"})
    await mine.ask("ping")
    await mine.until("pong")
    assert [said["type"] for said in mine.said] == ["watching", "pong", "pong"]


async def test_a_question_is_news_for_who_only_watches(agent_server: ServerFactory) -> None:
    call = {"name": "python", "arguments": {"code": "1"}}
    server = await agent_server([{"text": "", "calls": [call]}, {"text": "Done.", "loop": True}])
    kernel = await server.start_kernel("asking.ipynb")
    async with server.client() as client, page(server) as mine, page(server) as late:
        await mine.ask("watch", kernel=kernel)
        await mine.until("watching", kernel=kernel)
        started = await start_turn(client, "ask", kernel=kernel, where="live", answers=["*"])
        assert (await mine.until("binding.changed"))["session"] == started["session"]
        waiting = await mine.until("approval.waiting")
        assert (waiting["turn"], waiting["name"], waiting["kind"]) == (started["turn"], "python", "python.live")
        assert "code" not in waiting
        await late.ask("watch", session=started["session"])
        assert await late.until("approval.waiting") == waiting
        assert [said["type"] for said in late.said] == ["watching", "turn.opened", "approval.waiting"]
        answer = f"agent/v1/agent/approvals/{waiting['approval']}"
        (await client.post(answer, json={"decision": "deny"})).raise_for_status()
        resolved = await mine.until("approval.resolved")
        assert (resolved["approval"], resolved["decision"]) == (waiting["approval"], "deny")
        await session_of(client, "another")
        await client.put(f"agent/v1/binding?kernel={kernel}", json={"session": "another"})
        assert (await mine.until("binding.changed"))["session"] == "another"
        await client.delete(f"agent/v1/binding?kernel={kernel}")
        assert (await mine.until("binding.changed"))["session"] is None


async def test_a_page_serves_kernels_that_are_there(server: AgentServer, mine: Page) -> None:
    kernel = await server.start_kernel("served.ipynb")

    await mine.ask("serve", kernel=kernel, tools=["insert_cell"])
    await mine.ask("serve", kernel="none", tools=["insert_cell"])
    refused = await mine.until("error")
    assert refused["error"]["code"] == "not_found"
    assert refused["about"] == {"do": "serve", "kernel": "none"}
    await mine.ask("unserve", kernel=kernel)
    await mine.ask("ping")
    await mine.until("pong")
    assert len(mine.said) == 2


async def test_a_pong_confirms_the_tools_that_a_page_announced_before_its_ping(
    server: AgentServer, api: httpx.AsyncClient, mine: Page
) -> None:
    kernel = await server.start_kernel("announced.ipynb")

    await mine.ask("serve", kernel=kernel, tools=["live_document", "insert_cell"])
    await mine.ask("ping")
    await mine.until("pong")
    listed = (await api.post("agent/v1/tools", json={"kernel": kernel})).json()["tools"]
    assert "insert_cell" in {tool["name"] for tool in listed}


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "token wrong"}, {KERNEL_HEADER: "wrong", "Authorization": f"token {TOKEN}"}],
)
async def test_who_may_not_connect(server: AgentServer, headers: dict[str, str]) -> None:
    with pytest.raises(HTTPClientError) as refused:
        await connect(server, headers)
    assert refused.value.code == 401
    assert json.loads(not_none(refused.value.response).body)["error"]["code"] == "unauthenticated"


async def test_a_token_in_a_header_does_not_let_a_page_of_another_site_in(server: AgentServer) -> None:
    """No browser sends it on its own, but a token that leaked is to be of no use there, as on all other routes."""
    for name in ("Origin", "Sec-WebSocket-Origin"):
        with pytest.raises(HTTPClientError) as refused:
            await connect(server, {"Authorization": f"token {TOKEN}", name: "http://elsewhere.example"})
        assert refused.value.code == 403


async def test_a_page_of_another_site_can_not_use_the_cookie(server: AgentServer) -> None:
    async with server.client(None) as client:
        await client.get("login")
        xsrf = client.cookies["_xsrf"]
        await client.post("login", data={"password": TOKEN, "_xsrf": xsrf})
        cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        mine = {"Cookie": cookies, "Origin": f"http://127.0.0.1:{server.port}"}
        async with page(server, mine) as connected:
            await connected.ask("ping")
            assert await connected.hear() == {"type": "pong"}
        reply = await client.get("agent/v1/socket", headers={**UPGRADE, "Origin": "http://elsewhere.example"})
    assert reply.status_code == 403
    assert reply.json()["error"]["message"] == "Pages of other origins may not call this server."


async def test_a_refusal_before_the_connection_is_an_answer_like_others(api: httpx.AsyncClient) -> None:
    for left_out in UPGRADE:
        headers = {name: value for name, value in UPGRADE.items() if name != left_out}
        reply = await api.get("agent/v1/socket", headers={"Connection": "keep-alive", **headers})
        assert reply.status_code == 400, left_out
        assert reply.json()["error"]["code"] == "invalid_request"
        assert reply.json()["error"]["request_id"] == reply.headers["X-Request-ID"]


async def test_malformed_messages_are_refused_and_the_connection_stays(mine: Page) -> None:
    deep = "[" * 30_000
    bad: list[str | bytes] = ["", "null", "[]", "{}", '{"do": "fly"}', '{"do": "follow"}', deep, b"\x00\xff", b"{}"]
    bad += ['{"do": "follow", "turn": "t", "after": -1}', '{"do": "watch", "session": "", "kernel": ""}']
    bad += ['{"do": "ping", "more": 1}', '{"do": "serve", "kernel": "k", "tools": [1]}']
    for message in bad:
        await mine.socket.write_message(message, binary=isinstance(message, bytes))
        refused = await mine.hear()
        assert refused is not None, message
        assert (refused["type"], refused["error"]["code"]) == ("error", "invalid_request"), message
    await mine.ask("follow", turn="none")
    assert await mine.hear() == {"type": "unknown.turn", "turn": "none"}


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("{}", "do: Field required"),
        (
            '{"do": "fly"}',
            "do: Input should be one of 'follow', 'unfollow', 'watch', 'unwatch', 'serve', 'unserve', 'ping'",
        ),
    ],
)
async def test_an_unknown_message_is_refused_with_the_known_ones(mine: Page, message: str, words: str) -> None:
    await mine.socket.write_message(message)
    assert not_none(await mine.hear())["error"]["message"] == words


@pytest.mark.parametrize(("opcode", "payload"), [(1, b"x" * 70_000), (1, b"\xff\xfe"), (3, b"x"), (2, b"x" * 70_000)])
async def test_a_frame_that_is_too_large_or_no_frame_ends_the_connection(
    server: AgentServer, mine: Page, opcode: int, payload: bytes
) -> None:
    raw = await RawPage.connect(server)
    raw.send(payload, opcode)
    async with asyncio.timeout(30):
        try:
            while (await raw.frame())[0] != 8:
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            await raw.close()
    await mine.ask("ping")
    assert await mine.hear() == {"type": "pong"}


async def test_ten_thousand_frames_are_answered_in_order(mine: Page) -> None:
    async def ask() -> None:
        for number in range(10_000):
            await mine.ask("follow", turn=f"none-{number}")

    asking = asyncio.create_task(ask())
    for number in range(10_000):
        assert await mine.hear() == {"type": "unknown.turn", "turn": f"none-{number}"}
    await asking


async def test_a_page_holds_no_more_than_it_may(mine: Page) -> None:
    for number in range(201):
        await mine.ask("watch", session=f"held-{number}")
    refused = await mine.until("error")
    assert refused["error"]["code"] == "quota_exceeded"
    assert refused["about"] == {"do": "watch", "session": "held-200"}
    await mine.ask("unwatch", session="held-0")
    await mine.ask("watch", session="held-200")
    await mine.until("watching", session="held-200")


async def test_the_server_says_that_it_stops_and_turns_end_before(agent_server: ServerFactory) -> None:
    server = await agent_server([{"text": "It begins", "fault": "hang", "loop": True}])
    async with server.client() as client, page(server) as mine:
        turn = (await start_turn(client, "hang", session="stopped"))["turn"]
        await mine.ask("follow", turn=turn)
        await mine.until("text.delta")
        stopping = asyncio.create_task(server.stop())
        assert (await mine.turn(turn))[-1]["data"]["state"] == "cancelled"
        assert await mine.closed() == 1001
        await stopping


async def test_nothing_of_a_turn_is_lost_on_a_page_that_reads_late(agent_server: ServerFactory) -> None:
    words = "".join(f"{number} " for number in range(60_000))
    server = await agent_server([{"text": words, "deltas": 300, "delay": 0.001, "loop": True}])
    async with server.client() as client:
        turn = (await start_turn(client, "hello", session="late"))["turn"]
        raw = await RawPage.connect(server)
        raw.ask("follow", turn=turn)
        whole = await followed(client, turn)
        heard: list[Json] = []
        async with asyncio.timeout(60):
            while not heard or heard[-1]["type"] != "turn.finished":
                opcode, payload = await raw.frame()
                heard += [json.loads(payload)] if opcode == 1 else []
        await raw.close()
    assert text_of(heard) == text_of(whole) == words


async def test_a_login_that_counts_no_more_ends_what_a_page_may_do(agent_server: ServerFactory) -> None:
    server = await agent_server(extensions=("tests.jupyter_ext.probe_login",))
    kernel = await server.start_kernel("left.ipynb")
    async with server.client() as client, page(server) as mine:
        await mine.ask("serve", kernel=kernel, tools=["insert_cell"])
        await mine.ask("ping")
        assert await mine.hear() == {"type": "pong"}
        (await client.post("probe/change-login")).raise_for_status()
        await mine.ask("serve", kernel=kernel, tools=["insert_cell"])
        assert await mine.closed() == 4003
        assert [said["type"] for said in mine.said] == ["pong"]

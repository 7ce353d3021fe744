"""Tests the panel's connection through the kernel: a real kernel of a real server, and a page that has only
the comm.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.notebook.panel.server_relay import MAX_AT_ONCE, Relay, check_path, with_sandbox
from agent_kernel.notebook.server_client import ServerClient
from tests.notebook.panel.page import WAIT_S, Page
from tests.server import AgentServer, Json, start_turn

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SCRIPT: list[Json] = [
    {"when": "add", "calls": [{"name": "python", "arguments": {"code": "print(6 * 7)"}}]},
    {"when": "add", "text": "It is 42."},
    {"when": "slowly", "text": "word " * 40, "deltas": 40, "delay": 0.1},
    {"when": "at length", "text": "word " * 600, "deltas": 600, "delay": 0.1},
    {"text": "Fine.", "loop": True},
]


TRAITS = {"python_in": ""}


@pytest.fixture(scope="module")
def kernel(server: AgentServer) -> str:
    return asyncio.run(server.start_kernel("panel.ipynb"))


@pytest.fixture
async def page(server: AgentServer, kernel: str) -> AsyncIterator[Page]:
    async with server.kernel(kernel) as client:
        page = Page(client)
        await page.open()
        yield page
        page.say(do="leave")


async def test_a_turn_is_asked_and_followed_and_the_page_never_has_the_kernels_token(
    page: Page, server: AgentServer, kernel: str
) -> None:
    assert (await page.asked("GET", f"binding?kernel={kernel}"))["body"]["notebook"] == "panel.ipynb"
    body = {"prompt": "add", "kernel": kernel, "where": "live", "answers": ["*"]}
    started = (await page.asked("POST", "turns", body))["body"]
    page.follow(started["turn"])
    await page.first(lambda said: said.get("event", {}).get("type") == "turn.finished")
    events = page.events(started["turn"])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    ran = next(event["data"] for event in events if event["type"] == "call.started")
    assert ran["where"] == "sandbox"
    assert events[-1]["data"]["state"] == "committed"
    assert page.state["kernel"] == kernel
    assert await server.kernel_token(kernel) not in page.wire


async def test_what_comes_back_does_not_wait_for_a_cell_and_what_is_asked_does(page: Page, server: AgentServer) -> None:
    started = (await page.asked("POST", "turns", {"prompt": "slowly"}))["body"]
    page.follow(started["turn"])
    await page.first(lambda said: "event" in said)
    cell = page.execute("import time, pathlib\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)")
    asked = page.ask("GET", "binding")
    await page.first(lambda said: said.get("event", {}).get("type") == "turn.finished")
    assert f'"{cell}": "idle"' not in page.wire
    assert not [said for said in page.told if said.get("id") == asked]
    assert page.events(started["turn"])[-1]["data"]["state"] == "committed"
    (server.root / "go").touch()
    assert (await page.answer(asked))["body"]["session"]["turns"] >= 1


async def test_turns_that_others_begin_are_news_to_a_page_that_watches(
    page: Page, server: AgentServer, kernel: str
) -> None:
    page.say(do="watch", target="kernel")
    async with server.client() as client:
        slow = (await start_turn(client, "at length", kernel=kernel))["turn"]
        assert await news_of(page, slow, "turn.opened")
        (await client.post(f"agent/v1/turns/{slow}/cancel", json={})).raise_for_status()
        assert (await news_of(page, slow, "turn.closed"))["state"] == "cancelled"
        quick = (await start_turn(client, "over before anybody looks", kernel=kernel))["turn"]
        assert await news_of(page, quick, "turn.opened")
        assert (await news_of(page, quick, "turn.closed"))["state"] == "committed"
    page.say(do="leave")
    await page.asked("GET", "binding")
    assert [said["news"]["turn"] for said in page.told if "news" in said] == [slow, slow, quick, quick]


async def test_all_that_is_said_of_a_turn_names_the_question_it_answers(page: Page) -> None:
    started = (await page.asked("POST", "turns", {"prompt": "slowly"}))["body"]
    first = page.follow(started["turn"])
    await page.first(lambda said: said.get("number") == first)
    second = page.follow(started["turn"])
    await page.first(lambda said: said.get("number") == second and said["event"]["type"] == "turn.finished")
    told = [(said["number"], said["event"]["seq"]) for said in page.told if "event" in said]
    assert {number for number, _ in told} == {first, second}
    anew = [seq for number, seq in told if number == second]
    assert anew == list(range(1, len(anew) + 1))


async def news_of(page: Page, turn: str, kind: str) -> Json:
    def fits(said: Json) -> bool:
        return bool(said.get("news", {}).get("turn") == turn and said["news"]["type"] == kind)

    news: Json = (await page.first(fits))["news"]
    return news


async def test_pictures_come_as_bytes(page: Page, kernel: str) -> None:
    media = [{"mime": "image/png", "data": base64.b64encode(PIXEL).decode()}]
    started = (await page.asked("POST", "turns", {"prompt": "look", "media": media}))["body"]
    page.follow(started["turn"])
    await page.first(lambda said: said.get("event", {}).get("type") == "turn.finished")
    listed = (await page.asked("GET", f"sessions/{started['session']}/turns?limit=1"))["body"]["turns"][0]
    page.say(do="bytes", id=1_000, path=f"sessions/{started['session']}/blobs/{listed['media'][0]['hash']}")
    await page.answer(1_000)
    assert PIXEL in page.buffers


async def test_what_a_page_may_not_ask_is_refused_in_the_words_of_every_error(page: Page, server: AgentServer) -> None:
    async with server.client() as client:
        other = (await client.post("agent/v1/sessions", json={"title": "of another"})).json()["id"]
    asked = {
        page.ask("GET", "../../api/contents"): "invalid_request",
        page.ask("GET", "sessions/%2e%2e/%2E./api/status"): "invalid_request",
        page.ask("GET", "/etc/passwd"): "invalid_request",
        page.ask("GET", "turns HTTP/1.1\r\nX: y"): "invalid_request",
        page.ask("TRACE", "binding"): "invalid_request",
        page.ask("GET", "sessions/none"): "session_not_found",
        page.ask("GET", f"sessions/{other}/turns"): "forbidden",
    }
    answers = {id: (await page.answer(id))["error"]["code"] for id in asked}
    assert answers == asked
    page.follow("none")
    assert await page.first(lambda said: said.get("unknown") == "none")


async def test_words_that_are_no_message_of_the_panel_and_too_many_of_them_leave_it_at_work(page: Page) -> None:
    for content in ({"do": "request", "id": "1"}, {"do": "exec", "code": "1/0"}, {"do": ["follow"]}, {}):
        page.say(**content)
    asked = [page.ask("GET", "binding") for _ in range(4 * MAX_AT_ONCE)]
    answers = [await page.answer(id) for id in asked]
    assert {said["error"]["code"] for said in answers if "error" in said} <= {"quota_exceeded"}
    assert (await page.asked("GET", "binding"))["body"]["model"]


async def test_without_a_server_the_panel_is_told_so(page: Page) -> None:
    told = "from agent_kernel.notebook.panel.server_relay import Relay\nsaid = []\n"
    relay = "relay = Relay(lambda: None, lambda content, buffers=(): said.append(content))\n"
    ask = "relay.hear({'to': 'v', 'do': 'request', 'id': 1, 'method': 'GET', 'path': 'binding', 'body': None})\n"
    wait = "import time\nwhile not said: time.sleep(0.01)\nprint('code is', said[0]['error']['code'])"
    page.execute(told + relay + ask + wait)
    await page.until(lambda: "code is server_unreachable" in page.wire)


def test_a_turn_for_which_there_is_no_room_now_is_asked_for_again() -> None:
    said: list[Mapping[str, Any]] = []
    free = threading.Event()

    def known() -> None:
        free.wait(WAIT_S)

    relay = Relay(known, lambda content, buffers=(): said.append(content))
    for id in range(MAX_AT_ONCE):
        relay.hear({"to": "v", "do": "request", "id": id, "method": "GET", "path": "binding", "body": None})
    relay.hear({"to": "v", "do": "follow", "turn": "t", "after": 0, "number": 7})
    free.set()
    assert said[0] == {"to": "v", "number": 7, "lost": "t"}


def test_of_a_turn_that_was_left_nothing_is_said() -> None:
    said: list[Mapping[str, Any]] = []
    left, threads = threading.Event(), set(threading.enumerate())
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        server = ServerClient(f"http://127.0.0.1:{listening.getsockname()[1]}/", "k", "token")

        def known() -> ServerClient:
            left.wait(WAIT_S)
            return server

        relay = Relay(known, lambda content, buffers=(): said.append(content))
        relay.hear({"to": "v", "do": "follow", "turn": "t", "after": 0, "number": 1})
        relay.hear({"to": "v", "do": "unfollow", "turn": "t"})
        left.set()
        for thread in set(threading.enumerate()) - threads:
            thread.join(WAIT_S)
    assert said == []


def test_code_of_a_turn_runs_in_the_sandbox_however_its_path_is_written() -> None:
    for path in ("turns", "turns?kernel=k", "sessions/s/turns", "sessions/s/turns?x"):
        assert with_sandbox("POST", path, {"prompt": "p", "where": "live"}) == {"prompt": "p", "where": "sandbox"}
    assert with_sandbox("POST", "turns/t/cancel?x", {"where": "live"}) == {"where": "live"}


@pytest.mark.parametrize("path", ["", ".", "a/../b", "a/%2e%2E/b", "//host/x", "a b", "a\nb", "a\\b", "ä", "x" * 5_000])
def test_a_path_that_could_leave_the_agents_routes_is_none(path: str) -> None:
    with pytest.raises(InvalidRequest):
        check_path(path)


def test_paths_of_the_panel_are_left_as_they_are() -> None:
    for path in ("binding?kernel=1-2", "sessions/s_1/turns?limit=20&before=t%2F1", "turns/t.1/cancel", "models/a:b"):
        assert check_path(path) == path

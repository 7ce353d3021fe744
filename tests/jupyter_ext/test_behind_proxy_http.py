"""Tests a server behind a reverse proxy and below a prefix, as on a hub: SDKs, streams, the WebSocket, cookies and
generated addresses; and which requests pages of other sites may send.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx
import openai
import pytest
from tornado.httpclient import HTTPClientError

from agent_kernel.core.api_tokens import ApiTokenStore
from tests.jupyter_ext.conftest import HELLO, SLOW
from tests.page import connect
from tests.server import PLAIN, ROOT, TOKEN, AgentServer, Json, follow, followed, free_port, start_turn

PREFIX = "user/ada%20l/"
GATED = {"text": "word " * 40, "deltas": 40, "when": "gated", "gate": "go", "loop": True}
SCRIPT = [SLOW, GATED, HELLO]
FOREIGN = {"Origin": "https://elsewhere.example"}
CHAT: Json = {"model": "default", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
POSTS = {
    "chat/completions": CHAT,
    "responses": {"input": "hi"},
    "messages": CHAT,
    "messages/count_tokens": CHAT,
    "turns": {"prompt": "hi"},
    "sessions": {"bind": False},
}


@dataclass
class Behind(AgentServer):
    """A server whose addresses are those of the proxy."""

    outside: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.outside or self.port}/{PREFIX}"


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    options = [f"--ServerApp.base_url=/{PREFIX}", "--ServerApp.trust_xheaders=True"]
    options += ["--ServerApp.allow_origin=https://app.example"]
    server = Behind(tmp_path_factory.mktemp("behind"), SCRIPT, options=options)
    proxy: subprocess.Popen[bytes] | None = None
    try:
        asyncio.run(server.start())
        outside = free_port()
        command = [sys.executable, "-m", "tests.jupyter_ext.reverse_proxy", str(outside), str(server.port)]
        proxy = subprocess.Popen(command, cwd=ROOT)
        server.outside = outside
        _until_up(server)
        yield server
    finally:
        if proxy is not None:
            proxy.kill()
            proxy.wait()
        server.sweep()


def _until_up(server: Behind) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            httpx.get(f"{server.agent_url}health", **PLAIN)
            return
        except httpx.TransportError:
            assert time.monotonic() < until
            time.sleep(0.05)


def lasting(server: AgentServer, *scopes: str) -> str:
    return ApiTokenStore(server.directory / "data" / "tokens").new(scopes)[1]


@pytest.mark.parametrize("kind", ["the server's token", "an API token"])
async def test_an_sdk_streams_through_the_proxy(behind: Behind, kind: str) -> None:
    token = TOKEN if kind == "the server's token" else lasting(behind, "turns")
    gate, text = behind.directory / "go", ""
    gate.unlink(missing_ok=True)
    async with openai.AsyncOpenAI(base_url=behind.agent_url, api_key=token, max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "gated"}], stream=True
        )
        async for part in stream:
            text += (part.choices[0].delta.content or "") if part.choices else ""
            if text:  # it is not gathered on its way, or its second half would never begin
                gate.touch()
    assert text == GATED["text"]
    claude = anthropic.AsyncAnthropic(base_url=behind.url + "agent", auth_token=token, api_key=None)
    wanted: Any = {"model": "default", "max_tokens": 99, "messages": [{"role": "user", "content": "slow"}]}
    async with claude, claude.messages.stream(**wanted) as events:
        assert await events.get_final_text() == SLOW["text"]


async def test_a_stream_is_here_before_its_turn_is_over(behind: Behind) -> None:
    async with behind.client() as client:
        turn = (await start_turn(client, "slow"))["turn"]
        async for event in follow(client, turn):
            if event["type"] == "text.delta":
                assert (await client.get(f"agent/v1/turns/{turn}")).json()["running"]
                break


async def test_a_person_logs_in_and_needs_the_proof_of_the_page(behind: Behind) -> None:
    async with behind.client(None) as client:
        await client.get("login")
        await client.post("login", data={"password": TOKEN, "_xsrf": client.cookies["_xsrf"]})
        assert {cookie.path for cookie in client.cookies.jar} == {f"/{PREFIX}"}
        proof = {"X-XSRFToken": client.cookies["_xsrf"]}
        for path, body in POSTS.items():
            assert (await client.post(f"agent/v1/{path}", json=body)).status_code == 403, path
            own = {"Origin": f"http://127.0.0.1:{behind.outside}"}
            assert (await client.post(f"agent/v1/{path}", json=body, headers=proof | own)).status_code < 300, path
            foreign = await client.post(f"agent/v1/{path}", json=body, headers=proof | FOREIGN)
            assert foreign.status_code in (403, 404), path


async def test_the_live_connection_passes_with_cookies_and_with_tokens_and_from_no_other_site(behind: Behind) -> None:
    async with behind.client() as client:
        turn = (await start_turn(client, "slow"))["turn"]
        async with behind.client(None) as browser:
            await browser.get("login")
            await browser.post("login", data={"password": TOKEN, "_xsrf": browser.cookies["_xsrf"]})
            cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())}
        for headers in (cookie, {"Authorization": f"Bearer {lasting(behind, 'sessions')}"}):
            page = await connect(behind, headers)
            await page.ask("follow", turn=turn)
            assert await page.turn(turn) == await followed(client, turn)
            page.socket.close()
        with pytest.raises(HTTPClientError) as refused:
            await connect(behind, cookie | FOREIGN)
        assert refused.value.code == 403


async def test_addresses_that_are_told_lead_through_the_proxy(behind: Behind) -> None:
    async with behind.client() as client:
        document = (await client.get("agent/v1/openapi.json")).json()
        for server in document["servers"]:
            address = httpx.URL(behind.agent_url + "openapi.json").join(server["url"])
            assert (await client.get(f"{address}".rstrip("/") + "/health")).status_code == 200
        page = await client.get("agent/v1/docs")
        assert page.status_code == 200
        assert f":{behind.port}/" not in page.text
        assert f":{behind.port}/" not in str(document)


async def test_the_log_knows_the_client_and_not_the_proxy(behind: Behind) -> None:
    async with behind.client("wrong", {"X-Forwarded-For": "203.0.113.9"}) as client:
        assert (await client.get("agent/v1/health")).status_code == 401
    assert "203.0.113.9" not in behind.log.read_text()


async def test_pages_of_the_allowed_origin_may_speak_and_read_others_may_not(behind: Behind) -> None:
    text = lasting(behind, "turns")
    asked = "authorization,content-type,x-stainless-lang,anthropic-version"
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked}
    mine = {"Authorization": f"Bearer {text}"}
    async with behind.client(None) as client:
        app = {"Origin": "https://app.example"}
        for path, body in POSTS.items():
            allowed = await client.options(f"agent/v1/{path}", headers=app | preflight)
            assert allowed.headers["Access-Control-Allow-Origin"] == "https://app.example"
            assert allowed.headers["Access-Control-Allow-Headers"] == asked
            reply = await client.post(f"agent/v1/{path}", json=body, headers=app | mine)
            assert (reply.status_code < 300) == (path != "sessions"), reply.text
            assert reply.headers["Access-Control-Allow-Origin"] == "https://app.example"
            assert "X-Request-ID" in reply.headers["Access-Control-Expose-Headers"]
            refused = await client.post(f"agent/v1/{path}", json=body, headers=FOREIGN | mine)
            assert refused.status_code == 403, path
            assert refused.headers.get("Access-Control-Allow-Origin") != FOREIGN["Origin"]


async def test_a_server_without_a_login_obeys_no_other_page_and_no_other_name(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with AgentServer(tmp_path_factory.mktemp("open"), [HELLO], login="") as server:
        await server.start()
        async with server.client(None) as client:
            rebound = {"Host": "elsewhere.example", "Origin": "http://elsewhere.example"}
            for path, body in POSTS.items():
                for headers in (FOREIGN, FOREIGN | {"Content-Type": "text/plain"}, rebound, {"Origin": "null"}):
                    reply = await client.post(f"agent/v1/{path}", json=body, headers=headers)
                    assert reply.status_code in (401, 403, 404), (path, headers)
            assert (await client.get("agent/v1/sessions", headers=rebound)).status_code == 403
            assert (await client.get("agent/v1/sessions")).json() == {"sessions": []}

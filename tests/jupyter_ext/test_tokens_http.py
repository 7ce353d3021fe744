"""Tests programs with an API token on a real server: which routes they reach, and when they lose access."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import anthropic
import httpx
import openai
import pytest
from tornado.httpclient import HTTPClientError

from agent_kernel.core.api_tokens import ApiTokenStore
from tests.jupyter_ext.conftest import HANG, HELLO, SLOW
from tests.page import connect
from tests.server import KERNEL_HEADER, TOKEN, AgentServer, Json, follow, followed, start_turn, wait_for_event

ASK = {"text": "", "calls": [{"name": "python", "arguments": {"code": "6 * 7"}}], "when": "ask"}
SCRIPT = [ASK, {"text": "It is 42.", "when": "ask"}, HANG, SLOW, HELLO]
TRAITS = {"allow_urls": False}


def make_token(server: AgentServer, *scopes: str, name: str = "", user: str = "") -> tuple[str, str]:
    """Create an API token. Return its id and its text."""
    token, text = ApiTokenStore(server.directory / "data" / "tokens").new(scopes, name=name, user=user)
    return token.id, text


def revoke(server: AgentServer, id: str) -> None:
    ApiTokenStore(server.directory / "data" / "tokens").revoke(id)


def program(server: AgentServer, *scopes: str, **options: str) -> httpx.AsyncClient:
    return server.client(make_token(server, *scopes, **options)[1])


def ids(body: Json) -> list[str]:
    return [entry["id"] for entry in body["sessions"]]


async def test_the_clients_of_other_houses_need_nothing_but_the_token(server: AgentServer) -> None:
    _, text = make_token(server, "turns")
    async with openai.AsyncOpenAI(base_url=server.agent_url, api_key=text, max_retries=0) as client:
        said = await client.chat.completions.create(model="default", messages=[{"role": "user", "content": "hi"}])
        assert said.choices[0].message.content == "Hello."
        assert (await client.responses.create(model="default", input="hi")).output_text == "Hello."
        with pytest.raises(openai.PermissionDeniedError):
            await client.get("/sessions", cast_to=httpx.Response)
    for key, bearer in ((text, None), (None, text)):
        async with anthropic.AsyncAnthropic(base_url=server.url + "agent", api_key=key, auth_token=bearer) as claude:
            message = await claude.messages.create(
                model="default", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
            )
            assert message.to_dict()["content"] == [{"type": "text", "text": "Hello."}]


async def test_an_sdk_hears_that_its_token_is_not_valid_and_does_not_try_again(server: AgentServer) -> None:
    id, text = make_token(server, "turns")
    async with openai.AsyncOpenAI(base_url=server.agent_url, api_key=text, max_retries=2) as client:
        revoke(server, id)
        with pytest.raises(openai.AuthenticationError) as caught:
            await client.chat.completions.create(model="default", messages=[{"role": "user", "content": "hi"}])
    assert text[16:] not in str(caught.value)


@pytest.mark.parametrize(
    "header",
    [
        ("Authorization", "Bearer {}"),
        ("authorization", "token {}"),
        ("Authorization", "bearer  {}"),
        ("X-Api-Key", "{}"),
    ],
)
async def test_a_token_comes_in_a_header(server: AgentServer, header: tuple[str, str]) -> None:
    _, text = make_token(server, "turns")
    async with server.client(None, {header[0]: header[1].format(text)}) as client:
        assert (await client.get("agent/v1/health")).status_code == 200


async def test_in_an_address_a_cookie_or_a_body_it_is_nothing_and_is_not_written_down(server: AgentServer) -> None:
    _, text = make_token(server, "all")
    async with server.client(None) as client:
        assert (await client.get("agent/v1/health", params={"token": text})).status_code == 401
        assert (await client.get("agent/v1/health", params={"access_token": text[:15]})).status_code == 401
        assert (await client.get("agent/v1/health", headers={"Cookie": f"token={text}"})).status_code == 401
        assert (await client.post("agent/v1/turns", json={"prompt": "hi", "token": text})).status_code == 401
    assert text[16:] not in server.log.read_text()


async def test_the_servers_own_token_does_not_count_in_an_address_either(server: AgentServer) -> None:
    address = {"token": TOKEN}
    async with server.client(None) as client:
        for path in ("health", "sessions", "docs", "openapi.json", "metrics", "models", "nothing/here", "socket"):
            refused = await client.get(f"agent/v1/{path}", params=address)
            assert refused.status_code == 401, path
            assert "URL" in refused.json()["error"]["message"]
        for path in ("turns", "chat/completions", "messages", "responses", "mcp"):
            assert (await client.post(f"agent/v1/{path}", params=address, json={})).status_code == 401, path
        with pytest.raises(HTTPClientError) as closed:
            await connect(server, {}, query=f"?token={TOKEN}")
        assert closed.value.code == 401
    async with server.client() as client:
        assert (await client.get("agent/v1/health", params={"token": "another"})).status_code == 200, "a header counts"


async def test_an_unknown_token_is_named_as_the_reason_also_where_a_login_could_be(server: AgentServer) -> None:
    wrong = {"Authorization": "Bearer wrong"}
    async with server.client(None) as client:
        await client.get("login")  # the page sets the XSRF cookie
        for headers in (wrong, {"x-api-key": "wrong"}):
            refused = await client.post("agent/v1/turns", json={"prompt": "hi"}, headers=headers)
            assert refused.status_code == 401
            assert refused.json()["error"]["message"] == "This server does not know the token of this request."
        await client.post("login", data={"password": TOKEN, "_xsrf": client.cookies["_xsrf"]})
        refused = await client.post("agent/v1/turns", json={"prompt": "hi"}, headers=wrong)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthenticated")
        refused = await client.post("agent/v1/turns", json={"prompt": "hi"})
        assert refused.status_code == 403
        assert "X-XSRFToken" in refused.json()["error"]["hint"]


def ask_openai(client: openai.OpenAI) -> Iterator[Callable[[], Any]]:
    said: Any = [{"role": "user", "content": "hi"}]
    yield lambda: client.chat.completions.create(model="default", messages=said)
    yield lambda: client.responses.create(model="default", input="hi")
    yield client.models.list
    yield client.files.list
    yield lambda: client.embeddings.create(model="default", input="hi")


def ask_anthropic(client: anthropic.Anthropic) -> Iterator[Callable[[], Any]]:
    said: Any = [{"role": "user", "content": "hi"}]
    yield lambda: client.messages.create(model="default", max_tokens=9, messages=said)
    yield lambda: client.messages.count_tokens(model="default", messages=said)
    yield client.models.list
    yield client.beta.files.list
    yield client.messages.batches.list


def test_every_client_reads_the_refusal_of_an_unknown_token_in_its_own_shape(server: AgentServer) -> None:
    """The last request of each client goes to a route that this server does not have."""
    with openai.OpenAI(base_url=server.agent_url, api_key="wrong", max_retries=0) as client:
        codes = ["invalid_api_key"] * 2 + ["unauthenticated"] * 3  # the other routes have clients of several APIs
        for ask, code in zip(ask_openai(client), codes, strict=True):
            with pytest.raises(openai.AuthenticationError) as openai_refused:
                ask()
            assert (openai_refused.value.type, openai_refused.value.code) == ("authentication_error", code)
    with anthropic.Anthropic(base_url=f"{server.url}agent", api_key="wrong", max_retries=0) as claude:
        for ask in ask_anthropic(claude):
            with pytest.raises(anthropic.AuthenticationError) as refused:
                ask()
            body: Any = refused.value.body
            assert (body["type"], body["error"]["type"]) == ("error", "authentication_error")


def test_every_client_reads_that_a_route_is_unknown_in_its_own_shape(server: AgentServer) -> None:
    with openai.OpenAI(base_url=server.agent_url, api_key=TOKEN, max_retries=0) as client:
        with pytest.raises(openai.NotFoundError, match=r"openapi\.json") as openai_refused:
            client.embeddings.create(model="default", input="hi")
        assert (openai_refused.value.type, openai_refused.value.code) == ("invalid_request_error", "not_found")
    with anthropic.Anthropic(base_url=f"{server.url}agent", api_key=TOKEN, max_retries=0) as claude:
        with pytest.raises(anthropic.NotFoundError, match=r"openapi\.json") as refused:
            claude.messages.batches.list()
        body: Any = refused.value.body
        assert body["error"]["type"] == "not_found_error"


@pytest.mark.parametrize("path", ["api/contents", "api/kernels", "api/me", "api/status", "lab/api/settings", "files/a"])
async def test_jupyters_own_routes_take_no_lasting_token(server: AgentServer, path: str) -> None:
    async with program(server, "all") as client:
        assert (await client.get(path)).status_code in (302, 403, 404)
        assert (await client.get("agent/v1/health")).status_code == 200


async def test_a_token_decides_also_where_a_login_or_another_credential_comes_with_it(server: AgentServer) -> None:
    id, text = make_token(server, "turns")
    async with server.client(None) as client:
        await client.get("login")
        await client.post("login", data={"password": TOKEN, "_xsrf": client.cookies["_xsrf"]})
        assert (await client.get("agent/v1/sessions")).status_code == 200
        mine = {"Authorization": f"Bearer {text}"}
        assert (await client.get("agent/v1/sessions", headers=mine)).status_code == 403
        assert (await client.post("agent/v1/turns", headers=mine, json={"prompt": "hi"})).status_code == 202
        revoke(server, id)
        assert (await client.get("agent/v1/health", headers=mine)).status_code == 401
        both = mine | {KERNEL_HEADER: "wrong"}
        assert (await client.get("agent/v1/health", headers=both)).status_code == 401


async def test_the_list_of_models_says_who_may_download_and_choose_one(server: AgentServer) -> None:
    for scopes, may in ((("turns", "sessions"), False), (("all",), True)):
        async with program(server, *scopes) as client:
            assert (await client.get("agent/v1/models")).json()["may_change"] is may
            choice = await client.put("agent/v1/engine", json={"model": ""})
            assert (choice.status_code != 403) is may


async def test_with_the_scope_turns_a_program_has_its_own_conversations_and_nobody_elses(server: AgentServer) -> None:
    async with server.client() as person, program(server, "turns", "files") as mine, program(server, "turns") as other:
        theirs = await start_turn(person, "hello", session="of-a-person")
        await followed(person, theirs["turn"])
        turn = await start_turn(mine, "hello", session="of-a-program")
        await followed(mine, turn["turn"])
        file = await mine.post("agent/v1/files", files={"file": ("a.txt", b"mine")}, data={"purpose": "user_data"})
        assert (await mine.get("agent/v1/sessions/of-a-program/items")).json()["items"][0]["message"][
            "content"
        ] == "hello"
        for client in (person, other):
            assert (await client.get("agent/v1/sessions/of-a-program")).status_code == 404
            assert (await client.get(f"agent/v1/turns/{turn['turn']}")).status_code == 404
            assert (await client.get(f"agent/v1/turns/{turn['turn']}/events")).status_code == 404
            assert (await client.post(f"agent/v1/turns/{turn['turn']}/cancel", json={})).status_code == 404
            assert (await client.get(f"agent/v1/files/{file.json()['id']}/content")).status_code == 404
        assert "of-a-program" not in ids((await person.get("agent/v1/sessions")).json())
        assert (await mine.get("agent/v1/sessions/of-a-person")).status_code == 404
        assert (await mine.get(f"agent/v1/turns/{theirs['turn']}")).status_code == 404
        # The same name is another conversation.
        again = await start_turn(mine, "hello", session="of-a-person")
        await followed(mine, again["turn"])
        assert len((await person.get("agent/v1/sessions/of-a-person/turns")).json()["turns"]) == 1


async def test_a_token_of_the_same_name_goes_on_where_the_last_one_ended(server: AgentServer) -> None:
    async with program(server, "turns", name="bot") as first:
        await followed(first, (await start_turn(first, "hello", session="kept"))["turn"])
        response = (await first.post("agent/v1/responses", json={"input": "hi"})).json()["id"]
    async with program(server, "turns", name="bot") as second, program(server, "turns", name="bot2") as other:
        assert (await second.get("agent/v1/sessions/kept")).status_code == 200
        assert (await other.get("agent/v1/sessions/kept")).status_code == 404
        goes_on = {"input": "more", "previous_response_id": response}
        assert (await second.post("agent/v1/responses", json=goes_on)).status_code == 200
        assert (await other.post("agent/v1/responses", json=goes_on)).status_code == 400


async def test_with_the_scope_sessions_a_program_reads_what_its_user_said(server: AgentServer) -> None:
    async with server.client() as person, program(server, "sessions") as archive:
        await followed(person, (await start_turn(person, "hello", session="read-by-all"))["turn"])
        assert "read-by-all" in ids((await archive.get("agent/v1/sessions")).json())
        assert (await archive.get("agent/v1/sessions/read-by-all/items")).status_code == 200
        assert (await archive.post("agent/v1/turns", json={"prompt": "hi"})).status_code == 403


async def test_a_program_answers_what_its_own_turn_asks_and_no_others(server: AgentServer) -> None:
    async with program(server, "turns", "sessions") as mine, program(server, "turns", "sessions") as other:
        turn = await start_turn(mine, "ask", session="asks", answers=["*"], permission="ask")
        asked = await wait_for_event(mine, turn["turn"], "approval.required")
        path = f"agent/v1/agent/approvals/{asked['data']['approval']}"
        assert (await other.get(f"agent/v1/turns/{turn['turn']}")).status_code == 200  # the same user's
        assert (await other.post(path, json={"decision": "approve"})).status_code == 404
        assert (await other.get("agent/v1/agent/approvals")).json() == {"approvals": []}
        assert (await mine.post(path, json={"decision": "approve"})).json()["status"] == "resolved"
        assert (await followed(mine, turn["turn"]))[-1]["data"]["state"] == "committed"


async def test_a_program_reaches_no_notebook_no_kernel_and_no_engine_by_its_address(server: AgentServer) -> None:
    kernel = await server.start_kernel("theirs.ipynb")
    async with program(server, "turns", "sessions", "files", "skills", "metrics") as client:
        requests: Sequence[tuple[str, str, Json | None]] = [
            ("POST", "agent/v1/turns", {"prompt": "hi", "kernel": kernel}),
            ("GET", "agent/v1/sessions?path=theirs.ipynb", None),
            ("POST", "agent/v1/sessions?path=theirs.ipynb", {"bind": True}),
            ("GET", f"agent/v1/models?kernel={kernel}", None),
            ("GET", "agent/v1/search?path=theirs.ipynb&q=hello", None),
            ("POST", "agent/v1/turns", {"prompt": "hi", "model": "http://127.0.0.1:1/v1#m"}),
        ]
        for verb, path, body in requests:
            assert (await client.request(verb, path, json=body)).status_code == 403, path


async def test_a_revoked_token_ends_its_open_streams(server: AgentServer) -> None:
    id, text = make_token(server, "turns")
    async with server.client(text) as client, server.client() as person:
        turn = await start_turn(client, "hang", session="to be cut")
        async with asyncio.timeout(20):
            await wait_for_event(client, turn["turn"], "text.delta")
            events = follow(client, turn["turn"])
            await anext(events)
            revoke(server, id)
            with pytest.raises(httpx.RemoteProtocolError):
                async for _ in events:
                    pass
        assert (await client.get(f"agent/v1/turns/{turn['turn']}")).status_code == 401
        assert (await person.get("agent/v1/health")).status_code == 200


async def test_a_live_connection_is_for_tokens_that_count(server: AgentServer) -> None:
    id, text = make_token(server, "turns")
    connection = await connect(server, {"Authorization": f"Bearer {text}"})
    connection.socket.close()
    revoke(server, id)
    with pytest.raises(HTTPClientError) as refused:
        await connect(server, {"Authorization": f"Bearer {text}"})
    assert refused.value.code == 401


async def test_the_log_names_who_asked_and_never_a_secret(server: AgentServer) -> None:
    id, text = make_token(server, "turns", name="logged")
    headers = {"Authorization": f"Bearer {text}", "X-Request-ID": "mine-1"}
    async with server.client(None, headers) as client:
        await start_turn(client, "hello")
        assert (await client.get("agent/v1/sessions")).status_code == 403
        assert (await client.post("agent/v1/turns", content=b"{")).status_code == 400
    log = server.log.read_text()
    assert "agent-kernel POST turns: 202 in " in log
    assert f"for token {id} (logged), request mine-1" in log
    assert "agent-kernel GET sessions: 403 in" in log
    assert text[16:] not in log


async def test_the_log_has_no_id_and_no_searched_word_of_a_refused_request(server: AgentServer) -> None:
    async with server.client() as http:
        for path in ("sessions/secretid", "search?q=secretwords&limit=many", "turns/%FFsecretid", "secretroute"):
            assert (await http.get(f"agent/v1/{path}")).status_code >= 400
    log = server.log.read_text()
    assert "404 GET /agent/v1/sessions/{id} " in log
    assert not re.findall(r".*secret(?:id|words|route).*", log)


async def test_the_day_of_the_last_use_is_known(server: AgentServer) -> None:
    id, text = make_token(server, "metrics")
    tokens = ApiTokenStore(server.directory / "data" / "tokens")
    assert [token.used for token in tokens.list_tokens() if token.id == id] == [0]
    async with server.client(text) as client:
        assert (await client.get("agent/v1/health")).status_code == 200
    assert [token.used > 0 for token in tokens.list_tokens() if token.id == id] == [True]

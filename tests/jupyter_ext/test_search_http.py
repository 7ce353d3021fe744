"""Tests search over HTTP: its results, and who may see them."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit

import httpx
import pytest

from tests.server import TOKEN, AgentServer, Json, followed, start_turn

FOREIGN = "where is the peridot of somebody else?"


async def run_turn(client: httpx.AsyncClient, prompt: str, **body: str) -> Json:
    turn = await start_turn(client, prompt, **body)
    await followed(client, turn["turn"])
    return turn


async def search_sessions(client: httpx.AsyncClient, **query: str | int) -> list[str]:
    reply = await client.get("agent/v1/search", params=query)
    assert reply.status_code == 200, reply.text
    return [hit["session"]["id"] for hit in reply.json()["hits"]]


async def test_a_hit_tells_session_turn_and_cell(server: AgentServer) -> None:
    async with server.client() as client:
        turn = await run_turn(client, "tell me of <b>rhodonite</b>", session="search one", cell="c7")
        (hit,) = (await client.get("agent/v1/search", params={"q": "RHODO"})).json()["hits"]
    assert (hit["session"]["id"], hit["notebooks"]) == ("search one", [])
    (snippet,) = hit["snippets"]
    assert (snippet["turn"], snippet["cell"], snippet["role"]) == (turn["turn"], "c7", "user")
    assert snippet["text"] == "tell me of <b>rhodonite</b>"
    assert hit["score"] > 1


async def test_a_search_can_be_narrowed(server: AgentServer) -> None:
    kernel = await server.start_kernel("narrow.ipynb")
    async with server.client() as client:
        here = await run_turn(client, "sphene here", kernel=kernel)
        await run_turn(client, "sphene there", session="search there")
        assert await search_sessions(client, q="sphene") == ["search there", here["session"]]
        assert await search_sessions(client, q="sphene", limit=1) == ["search there"]
        assert await search_sessions(client, q="sphene", limit=0) == []
        assert await search_sessions(client, q="sphene", path="narrow.ipynb") == [here["session"]]
        assert await search_sessions(client, q="sphene", kernel=kernel) == [here["session"]]
        assert await search_sessions(client, q="sphene", role="assistant") == []
        assert await search_sessions(client, q="sphene", until="2020-01-31") == []
        assert len(await search_sessions(client, q="sphene", since="2020-01-31T10:00:00+01:00")) == 2
        assert len(await search_sessions(client, q="sphene", since="1e9", until="1e11")) == 2


@pytest.mark.parametrize(
    "query",
    [{"role": "tool"}, {"limit": "-1"}, {"since": "yesterday"}, {"until": "nan"}, {"q": "w" * 1001}, {"here": "1"}],
)
async def test_a_search_that_makes_no_sense_is_refused(server: AgentServer, query: dict[str, str]) -> None:
    async with server.client() as client:
        reply = await client.get("agent/v1/search", params={"q": "sphene", **query})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")


async def test_a_kernel_finds_what_it_may_read_until_a_person_lets_it_search_everything(server: AgentServer) -> None:
    kernel = await server.start_kernel("mine.ipynb")
    token = await server.kernel_token(kernel)
    async with server.client() as person, server.kernel_client(token) as code:
        await run_turn(person, FOREIGN, session="search foreign")
        mine = await run_turn(code, "my own peridot")
        reply = (await code.get("agent/v1/search", params={"q": "peridot"})).json()
        assert [hit["session"]["id"] for hit in reply["hits"]] == [mine["session"]]
        assert reply["searched"] == "own"
        assert await search_sessions(code, q="somebody") == []
        assert await search_sessions(code, q="peridot", here="1") == [mine["session"]]

        asked = await code.post("agent/v1/search/access", json={})
        assert asked.status_code == 202
        pending, url = asked.json()["pending"], asked.json()["url"]
        assert (await code.get(f"agent/v1/binds/{pending}")).json() == {"status": "waiting"}
        assert (await code.post(url, data={"decision": "confirmed"})).status_code == 403
        assert await search_sessions(code, q="somebody") == []
        page = await person.get(url)
        assert "search all conversations of <b>local</b>" in page.text
        xsrf = re.search(r'name="_xsrf" value="([^"]+)"', page.text)
        form = {"decision": "confirmed", **({"_xsrf": xsrf[1]} if xsrf else {})}
        done = await person.post(url, data=form, headers={"Authorization": f"token {TOKEN}"})
        assert done.status_code == 200, done.text

        assert (await code.get(f"agent/v1/binds/{pending}")).json() == {"status": "confirmed"}
        assert sorted(await search_sessions(code, q="peridot")) == sorted([mine["session"], "search foreign"])
        assert (await code.post("agent/v1/search/access", json={})).json() == {"granted": True}
        assert (await code.get("agent/v1/sessions/search%20foreign/items")).status_code == 403


async def test_a_person_who_is_logged_in_sees_the_page_of_a_question_whatever_token_its_address_has(
    server: AgentServer,
) -> None:
    kernel = await server.start_kernel("asks.ipynb")
    async with server.kernel_client(await server.kernel_token(kernel)) as code:
        url = (await code.post("agent/v1/search/access", json={})).json()["url"]
    async with httpx.AsyncClient(base_url=server.url, follow_redirects=True) as browser:
        assert (await browser.get("api/status", params={"token": TOKEN})).status_code == 200
        for token in (TOKEN, "stale"):
            page = await browser.get(url, params={"token": token})
            assert (page.status_code, page.text.count("<button")) == (200, 2), page.text
    async with httpx.AsyncClient(base_url=server.url) as stranger:
        assert (await stranger.get(url, params={"token": TOKEN})).status_code == 401


async def test_a_browser_that_is_not_logged_in_is_sent_to_the_login_and_back(server: AgentServer) -> None:
    kernel = await server.start_kernel("unknown.ipynb")
    async with server.kernel_client(await server.kernel_token(kernel)) as code, server.client(None) as nobody:
        url = (await code.post("agent/v1/search/access", json={})).json()["url"]
        page = await nobody.get(url, headers={"Accept": "text/html"})
        assert page.status_code == 302
        assert page.headers["Location"] == f"/login?next={quote(urlsplit(url).path, safe='')}"
        assert (await nobody.get(url)).status_code == 401, "a program has no use for a login page"

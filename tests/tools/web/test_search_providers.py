from __future__ import annotations

import asyncio
import json
import threading
import urllib.parse
from collections.abc import Mapping
from typing import Any

import pytest
from ddgs.engines import ENGINES

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import FetchFailed, InvalidRequest, LocalOnly
from agent_kernel.tools.web import search_providers
from agent_kernel.tools.web.search_providers import (
    CallbackSearch,
    DuckDuckGo,
    SearchResult,
    SearXNG,
    WebQuery,
    provider_of,
)
from tests.core.net.web import moved, says, says_nothing, served
from tests.waiting import until

BIRDS = WebQuery("house sparrow", {"country": "GB", "city": "London"}, ("birds.example", "wiki.example"))
RESULT = """<div class="result results_links"><div class="links_main result__body">
<h2 class="result__title"><a class="result__a" href="https://birds.example/{n}">Sparrow <b>{n}</b></a></h2>
<a class="result__snippet" href="https://birds.example/{n}">About the <b>sparrow</b>, part {n}.</a></div></div>"""
PAGE = "<html><body><div id='links'>{}</div></body></html>"


async def test_duckduckgo_is_asked_through_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is real, and so is the server; the page has the shape that the package reads."""
    page = PAGE.format("".join(RESULT.format(n=n) for n in range(3))).encode()
    async with served({"/html/": says(200, page, content_type="text/html; charset=utf-8")}) as web:
        monkeypatch.setattr(ENGINES["text"]["duckduckgo"], "search_url", web.url("/html/"))
        found = await DuckDuckGo(EgressPolicy()).search(BIRDS)
    assert {one.url for one in found} == {f"https://birds.example/{n}" for n in range(3)}
    assert "sparrow" in found[0].description
    [asked] = web.asked
    sent = dict(urllib.parse.parse_qsl(asked.body.decode()))
    assert sent["q"] == "house sparrow (site:birds.example OR site:wiki.example)"
    assert sent["l"] == "uk-en"


@pytest.mark.parametrize(("status", "body"), [(200, b"<html><body></body></html>"), (202, b"try later"), (500, b"")])
async def test_duckduckgo_without_results_has_none_or_says_why(
    status: int, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served({"/html/": says(status, body, content_type="text/html")}) as web:
        monkeypatch.setattr(ENGINES["text"]["duckduckgo"], "search_url", web.url("/html/"))
        assert await DuckDuckGo(EgressPolicy()).search(BIRDS) == []
        assert len(web.asked) == 1


async def test_duckduckgo_out_of_reach_is_a_search_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served({}) as web:
        pass
    monkeypatch.setattr(ENGINES["text"]["duckduckgo"], "search_url", web.url("/html/"))
    with pytest.raises(FetchFailed, match="DuckDuckGo"):
        await DuckDuckGo(EgressPolicy()).search(BIRDS)


async def test_no_other_engine_is_asked_instead_of_duckduckgo(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {name: engine for name, engine in ENGINES["text"].items() if name != "duckduckgo"}
    monkeypatch.setitem(ENGINES, "text", others)
    with pytest.raises(FetchFailed, match="with DuckDuckGo alone"):
        await DuckDuckGo(EgressPolicy()).search(BIRDS)


async def test_searxng_is_asked_for_json() -> None:
    results = [
        {"title": "Sparrow", "url": "https://birds.example/1", "content": "A bird.", "engine": "x"},
        {"title": "Again", "url": "https://birds.example/1", "content": "The same page."},
        {"title": None, "url": "https://birds.example/2", "content": None},
        {"title": "No address"},
        "no result",
        {"title": "Long", "url": "https://birds.example/" + "x" * 5_000},
    ]
    body = json.dumps({"query": "q", "results": results}).encode()
    async with served({"/searx/search": says(200, body, content_type="application/json")}) as web:
        found = await SearXNG(web.url("/searx/"), EgressPolicy()).search(BIRDS)
    assert found == [
        SearchResult("Sparrow", "https://birds.example/1", "A bird."),
        SearchResult("", "https://birds.example/2"),
    ]
    asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(web.asked[0].path).query))
    assert asked["q"] == "house sparrow (site:birds.example OR site:wiki.example)"
    assert (asked["format"], asked["language"]) == ("json", "en-GB")


@pytest.mark.parametrize(
    ("status", "body", "mime"),
    [
        (403, b"", "text/html"),
        (200, b"<html>", "text/html"),
        (200, b"{broken", "application/json"),
        (200, b"[]", "application/json"),
        (200, b'{"results": 3}', "application/json"),
        (200, b"{}", "application/json"),
    ],
)
async def test_a_searxng_that_does_not_answer_with_results_is_a_search_that_failed(
    status: int, body: bytes, mime: str
) -> None:
    async with served({"/search": says(status, body, content_type=mime)}) as web:
        with pytest.raises(FetchFailed):
            await SearXNG(web.url(), EgressPolicy()).search(BIRDS)


async def test_a_searxng_leads_nowhere_else() -> None:
    async with served({"/": says(200, b"secret")}) as other, served({"/search": moved(other.url())}) as web:
        with pytest.raises(Exception, match="are not allowed"):
            await SearXNG(web.url(), EgressPolicy()).search(BIRDS)
        assert other.asked == []


async def test_a_function_answers_a_query() -> None:
    def search(query: str) -> list[dict[str, str]]:
        return [{"title": query, "url": "https://a.example/", "description": "d", "content": "c"}]

    async def search_later(query: str) -> Any:
        await asyncio.sleep(0)
        return search(query)

    for function in (search, search_later, lambda query: search_later(query)):
        found = await CallbackSearch(function).search(BIRDS)
        assert found == [SearchResult("house sparrow", "https://a.example/", "d", "c")]


async def test_a_function_that_wants_more_is_given_more() -> None:
    seen: list[Any] = []

    def search(query: str, *, location: Mapping[str, str], domains: tuple[str, ...]) -> list[Any]:
        seen.extend([query, location["city"], domains, threading.current_thread() is threading.main_thread()])
        return []

    assert await CallbackSearch(search).search(BIRDS) == []
    assert seen == ["house sparrow", "London", BIRDS.domains, False]


async def test_a_function_that_hangs_or_answers_nonsense_is_a_search_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = threading.Event()
    monkeypatch.setattr(search_providers, "CALLBACK_S", 0.05)
    with pytest.raises(FetchFailed, match="did not return"):
        await CallbackSearch(lambda query: free.wait(60)).search(BIRDS)
    free.set()
    with pytest.raises(FetchFailed, match="list"):
        await CallbackSearch(lambda query: "results").search(BIRDS)


def test_at_most_ten_results_are_taken() -> None:
    many = [{"url": f"https://a.example/{n}", "title": "t" * 900, "d": "d" * 9_000} for n in range(30)]
    found = search_providers.found_in(many, url="url", description="d")
    assert (len(found), len(found[0].title), len(found[0].description)) == (10, 200, 500)


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("duckduckgo", DuckDuckGo),
        ("searxng:http://localhost:8080", SearXNG),
        ("searxng:https://[::1]:81/x", SearXNG),
        ("tests.tools.web.test_search_providers:own", CallbackSearch),
        ("off", type(None)),
        ("", type(None)),
    ],
)
def test_the_setting_names_a_provider(setting: str, kind: type) -> None:
    assert isinstance(provider_of(setting, EgressPolicy()), kind)


@pytest.mark.parametrize(
    "setting",
    [
        "google",
        "duckduckgo:x",
        "searxng",
        "searxng:localhost",
        "json:nothing",
        "no.such.module:f",
        "json:__name__",
        ":",
    ],
)
def test_a_setting_that_names_none_is_said_to(setting: str) -> None:
    with pytest.raises(InvalidRequest, match="The setting web must be"):
        provider_of(setting, EgressPolicy())


async def test_with_local_only_nothing_is_searched_elsewhere() -> None:
    with pytest.raises(LocalOnly):
        await DuckDuckGo(EgressPolicy(local_only=True)).search(BIRDS)
    with pytest.raises(LocalOnly):
        await SearXNG("https://searx.example/", EgressPolicy(local_only=True)).search(BIRDS)
    async with served({"/search": says_nothing()}) as web, asyncio.timeout(20):
        search = asyncio.create_task(SearXNG(web.url(), EgressPolicy(local_only=True)).search(BIRDS))
        await until(lambda: web.asked)
        search.cancel()


def own(query: str) -> list[Any]:
    return []

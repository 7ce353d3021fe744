"""Who finds pages for a query: DuckDuckGo, a SearXNG of one's own, or a Python function."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import FetchFailed, InvalidRequest
from agent_kernel.core.net.fetch import Fetcher, FetchLimits
from agent_kernel.core.net.guard import PORTS, Guard
from agent_kernel.core.thread_offload import run_in_own_thread

RESULTS = 10
SITES = 8
"""Allowed domains that are named in the query itself; more would make it too long for an engine."""
DUCKDUCKGO = "https://html.duckduckgo.com/"
DUCKDUCKGO_S = 10
CALLBACK_S = 30.0
TITLE_CHARS, URL_CHARS, DESCRIPTION_CHARS, CONTENT_CHARS = 200, 2_000, 500, 400_000
PURPOSE = "the web search"
LANGUAGES = {
    **dict.fromkeys(("us", "gb", "au", "ca", "ie", "nz", "za", "in", "sg"), "en"),
    **{country: country for country in ("de", "fr", "es", "it", "nl", "pl", "pt", "ru", "tr", "fi", "hu", "ro")},
    "at": "de",
    "ch": "de",
    "br": "pt",
    "mx": "es",
    "ar": "es",
    "cz": "cs",
    "dk": "da",
    "se": "sv",
    "no": "no",
}
"""By country: what search engines want with it."""


@dataclass(frozen=True, slots=True)
class WebQuery:
    """``location`` is where the person is: city, region, country (two letters), timezone. ``domains`` are the only ones
    that are wanted, if any; what is found is filtered in any case."""

    words: str
    location: Mapping[str, str] = field(default_factory=dict)
    domains: tuple[str, ...] = ()

    @property
    def country(self) -> str:
        return self.location.get("country", "").lower()

    @property
    def with_sites(self) -> str:
        """In the words of search engines."""
        sites = " OR ".join(f"site:{domain}" for domain in self.domains[:SITES])
        return f"{self.words} ({sites})" if " OR " in sites else f"{self.words} {sites}".strip()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """``content`` is the text of the page where the provider has it; else it is fetched."""

    title: str
    url: str
    description: str = ""
    content: str = ""


class SearchProvider(Protocol):
    async def search(self, query: WebQuery) -> Sequence[SearchResult]:
        """Best first, at most RESULTS. Raises FetchFailed, LocalOnly."""
        ...


class DuckDuckGo:
    """Through the package ``ddgs`` (extra ``web``), of whose engines only this one is asked."""

    def __init__(self, exits: EgressPolicy) -> None:
        self._exits = exits

    async def search(self, query: WebQuery) -> Sequence[SearchResult]:
        self._exits.check(DUCKDUCKGO, PURPOSE)
        try:
            async with asyncio.timeout(2 * DUCKDUCKGO_S):
                found = await run_in_own_thread(lambda: _duckduckgo(query), "web search")
        except TimeoutError:
            raise FetchFailed(f"DuckDuckGo did not answer within {2 * DUCKDUCKGO_S} s.") from None
        return found_in(found, url="href", description="body")


class SearXNG:
    """``url`` of an instance whose settings allow the format json. It may be on this machine: whoever configured it
    chose it. A redirect leads nowhere else."""

    def __init__(self, url: str, exits: EgressPolicy) -> None:
        split = urllib.parse.urlsplit(url)
        if split.scheme not in PORTS or not split.hostname:
            raise InvalidRequest(f"web is searxng:URL of an instance, as searxng:http://localhost:8080; not {url!r}.")
        self._url = f"{url.rstrip('/')}/search"
        host = f"[{split.hostname}]" if ":" in split.hostname else split.hostname
        self._fetcher = Fetcher(Guard(f"{host}:{split.port or PORTS[split.scheme]}"), exits)

    async def search(self, query: WebQuery) -> Sequence[SearchResult]:
        asked = {"q": query.with_sites, "format": "json", "safesearch": "1"}
        if language := LANGUAGES.get(query.country):
            asked["language"] = f"{language}-{query.country.upper()}"
        url = f"{self._url}?{urllib.parse.urlencode(asked)}"
        page = await self._fetcher.get(url, FetchLimits(types=("application/json",)), purpose=PURPOSE)
        try:
            found = json.loads(page.data)["results"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise FetchFailed("The SearXNG instance did not answer with results in JSON.") from None
        return found_in(found, url="url", description="content")


class CallbackSearch:
    """``function(query)`` -> list of ``{title, description, url, content}``, sync or async, as mistral.rs has it. One
    that has the parameters is also given ``location`` and ``domains``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        names = inspect.signature(function).parameters
        self._more = [name for name in ("location", "domains") if name in names]

    async def search(self, query: WebQuery) -> Sequence[SearchResult]:
        more = {name: getattr(query, name) for name in self._more}
        try:
            async with asyncio.timeout(CALLBACK_S) as limit:
                if inspect.iscoroutinefunction(self._function):
                    found = await self._function(query.words, **more)
                else:
                    found = await run_in_own_thread(lambda: self._function(query.words, **more), "web search")
                    found = await found if inspect.isawaitable(found) else found
        except TimeoutError:
            if not limit.expired():
                raise
            raise FetchFailed(f"The search did not end within {CALLBACK_S:g} s.") from None
        return found_in(found, url="url", description="description", content="content")


def provider_of(setting: str, exits: EgressPolicy) -> SearchProvider | None:
    """By the setting ``web``; None: off. Raises InvalidRequest."""
    if setting.strip() in ("", "off"):
        return None
    name, _, rest = setting.strip().partition(":")
    if name == "duckduckgo" and not rest:
        return DuckDuckGo(exits)
    if name == "searxng":
        return SearXNG(rest, exits)
    try:
        function = getattr(importlib.import_module(name), rest)
        return CallbackSearch(function)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InvalidRequest(
            f"web is off, duckduckgo, searxng:URL or package.module:function; {setting!r} is none: {error}."
        ) from error


def found_in(answer: Any, *, url: str, description: str, content: str = "") -> list[SearchResult]:
    """What a provider answered, whatever it is; each page once. Raises FetchFailed for what is no list."""
    if not isinstance(answer, (list, tuple)):
        raise FetchFailed("The search did not answer with a list of results.")
    found: dict[str, SearchResult] = {}
    for one in answer:
        if not isinstance(one, Mapping) or not isinstance(one.get(url), str) or len(one[url]) > URL_CHARS:
            continue
        said = str(one.get(description) or "")[:DESCRIPTION_CHARS]
        whole = str(one.get(content) or "")[:CONTENT_CHARS] if content else ""
        found.setdefault(one[url], SearchResult(str(one.get("title") or "")[:TITLE_CHARS], one[url], said, whole))
    return list(found.values())[:RESULTS]


def _duckduckgo(query: WebQuery) -> list[dict[str, Any]]:
    """Whatever goes wrong in there is a search that failed."""
    try:
        from ddgs import DDGS
        from ddgs.engines import ENGINES
        from ddgs.exceptions import DDGSException
    except ImportError:
        raise FetchFailed("The search is missing: install agent-kernel[web] where the server runs.") from None
    if "duckduckgo" not in ENGINES["text"]:  # ddgs would ask the others
        raise FetchFailed("This version of ddgs does not ask DuckDuckGo; install another one.")
    country = "uk" if query.country == "gb" else query.country
    region = f"{country}-{LANGUAGES[query.country]}" if query.country in LANGUAGES else "wt-wt"
    try:
        return DDGS(timeout=DUCKDUCKGO_S).text(
            query.with_sites, region=region, backend="duckduckgo", max_results=RESULTS
        )
    except DDGSException as error:
        if "No results" in str(error):
            return []
        raise FetchFailed(f"DuckDuckGo did not answer: {str(error)[:300]}.") from None

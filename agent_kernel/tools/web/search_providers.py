"""Implements the search providers: DuckDuckGo, a SearXNG instance of the operator, or a Python function."""

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
"""Maximum number of allowed domains that are added to the query text. More domains would make the query too long for
search engines."""
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
"""The language in which search engines are asked for results, by country code."""


@dataclass(frozen=True, slots=True)
class WebQuery:
    """A search. ``words`` is the query text. ``location`` is the user's city, region, country (two letters) and
    timezone. ``domains`` are the domains to which the search should be restricted; empty for no restriction. Results
    are filtered by domain in any case."""

    words: str
    location: Mapping[str, str] = field(default_factory=dict)
    domains: tuple[str, ...] = ()

    @property
    def country(self) -> str:
        return self.location.get("country", "").lower()

    @property
    def with_sites(self) -> str:
        """The query text with the domains added as ``site:`` filters, which search engines understand."""
        sites = " OR ".join(f"site:{domain}" for domain in self.domains[:SITES])
        return f"{self.words} ({sites})" if " OR " in sites else f"{self.words} {sites}".strip()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One result. ``content`` is the text of the page if the provider returns it; if empty, the page is fetched."""

    title: str
    url: str
    description: str = ""
    content: str = ""


class SearchProvider(Protocol):
    async def search(self, query: WebQuery) -> Sequence[SearchResult]:
        """Return at most RESULTS results, best first. Raises FetchFailed, LocalOnly."""
        ...


class DuckDuckGo:
    """Searches with the package ``ddgs`` (extra ``web``), restricted to its DuckDuckGo engine."""

    def __init__(self, egress: EgressPolicy) -> None:
        self._egress = egress

    async def search(self, query: WebQuery) -> Sequence[SearchResult]:
        self._egress.check(DUCKDUCKGO, PURPOSE)
        try:
            async with asyncio.timeout(2 * DUCKDUCKGO_S):
                results = await run_in_own_thread(lambda: _duckduckgo(query), "web search")
        except TimeoutError:
            raise FetchFailed(f"DuckDuckGo did not answer within {2 * DUCKDUCKGO_S} s.") from None
        return found_in(results, url="href", description="body")


class SearXNG:
    """Searches with the SearXNG instance at ``url``, which must enable the format json. The instance may run on this
    machine, because an administrator configured it. Redirects are not followed."""

    def __init__(self, url: str, egress: EgressPolicy) -> None:
        split = urllib.parse.urlsplit(url)
        if split.scheme not in PORTS or not split.hostname:
            raise InvalidRequest(
                f"The setting web must be searxng:URL, as in searxng:http://localhost:8080, not {url!r}."
            )
        self._url = f"{url.rstrip('/')}/search"
        host = f"[{split.hostname}]" if ":" in split.hostname else split.hostname
        self._fetcher = Fetcher(Guard(f"{host}:{split.port or PORTS[split.scheme]}"), egress)

    async def search(self, query: WebQuery) -> Sequence[SearchResult]:
        parameters = {"q": query.with_sites, "format": "json", "safesearch": "1"}
        if language := LANGUAGES.get(query.country):
            parameters["language"] = f"{language}-{query.country.upper()}"
        url = f"{self._url}?{urllib.parse.urlencode(parameters)}"
        page = await self._fetcher.get(url, FetchLimits(types=("application/json",)), purpose=PURPOSE)
        try:
            results = json.loads(page.data)["results"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise FetchFailed("The SearXNG instance did not answer with results in JSON.") from None
        return found_in(results, url="url", description="content")


class CallbackSearch:
    """Searches with a Python function, sync or async, as in mistral.rs. ``function(query)`` returns a list of ``{title,
    description, url, content}``. If the function has the parameters ``location`` and ``domains``, it receives them
    too."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        names = inspect.signature(function).parameters
        self._more = [name for name in ("location", "domains") if name in names]

    async def search(self, query: WebQuery) -> Sequence[SearchResult]:
        more = {name: getattr(query, name) for name in self._more}
        try:
            async with asyncio.timeout(CALLBACK_S) as limit:
                if inspect.iscoroutinefunction(self._function):
                    results = await self._function(query.words, **more)
                else:
                    results = await run_in_own_thread(lambda: self._function(query.words, **more), "web search")
                    results = await results if inspect.isawaitable(results) else results
        except TimeoutError:
            if not limit.expired():
                raise
            raise FetchFailed(f"The search function did not return within {CALLBACK_S:g} s.") from None
        return found_in(results, url="url", description="description", content="content")


def provider_of(setting: str, egress: EgressPolicy) -> SearchProvider | None:
    """Create the provider that the setting ``web`` names; None if the setting is off. Raises InvalidRequest for an
    unknown provider."""
    if setting.strip() in ("", "off"):
        return None
    name, _, rest = setting.strip().partition(":")
    if name == "duckduckgo" and not rest:
        return DuckDuckGo(egress)
    if name == "searxng":
        return SearXNG(rest, egress)
    try:
        function = getattr(importlib.import_module(name), rest)
        return CallbackSearch(function)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InvalidRequest(
            f"The setting web must be off, duckduckgo, searxng:URL or module:function, not {setting!r}: {error}."
        ) from error


def found_in(answer: Any, *, url: str, description: str, content: str = "") -> list[SearchResult]:
    """Return the results in the answer of a provider, without duplicate pages. Raises FetchFailed unless the answer is
    a list."""
    if not isinstance(answer, (list, tuple)):
        raise FetchFailed("The search did not answer with a list of results.")
    results: dict[str, SearchResult] = {}
    for result in answer:
        if not isinstance(result, Mapping) or not isinstance(result.get(url), str) or len(result[url]) > URL_CHARS:
            continue
        snippet = str(result.get(description) or "")[:DESCRIPTION_CHARS]
        whole = str(result.get(content) or "")[:CONTENT_CHARS] if content else ""
        results.setdefault(
            result[url], SearchResult(str(result.get("title") or "")[:TITLE_CHARS], result[url], snippet, whole)
        )
    return list(results.values())[:RESULTS]


def _duckduckgo(query: WebQuery) -> list[dict[str, Any]]:
    """Search in a thread. Raises FetchFailed for any error inside the library."""
    try:
        from ddgs import DDGS
        from ddgs.engines import ENGINES
        from ddgs.exceptions import DDGSException
    except ImportError:
        raise FetchFailed(
            "The search library ddgs is missing: install agent-kernel[web] where the server runs."
        ) from None
    if "duckduckgo" not in ENGINES["text"]:  # ddgs would use other search engines
        raise FetchFailed("The installed version of ddgs cannot search with DuckDuckGo alone. Install another version.")
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

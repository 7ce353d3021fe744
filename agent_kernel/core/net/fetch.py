"""Fetches URLs for tools with HTTP GET, from targets that the address guard allows. A fetch connects only to addresses
that the guard has checked, and the guard also checks every redirect.

A fetch uses no cookies, keys, proxies from the environment or connections of other fetches, so that it cannot use the
credentials of another fetch.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import FetchFailed
from agent_kernel.core.net.decompression import create_decompressor
from agent_kernel.core.net.guard import FetchTarget, Guard

if TYPE_CHECKING:
    import ssl

    import httpx

REDIRECTS = 5
ADDRESSES = 3
"""Maximum number of addresses of a host to which a fetch tries to connect. All attempts together have the time limit
for one connection."""
USER_AGENT = "Mozilla/5.0 (compatible; agent-kernel)"
MOVED = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of one fetch, including redirects.

    ``bytes`` are counted after decompression. ``types`` are prefixes of the accepted content types; empty accepts all.
    ``connect_s`` limits the time to connect, ``total_s`` that of the whole fetch. The default times are those of
    mistral.rs: 5 and 10 s for pages, 30 s for files.
    """

    connect_s: float = 5.0
    total_s: float = 10.0
    bytes: int = 4 << 20
    types: tuple[str, ...] = ()


PAGE = FetchLimits()
FILE = FetchLimits(total_s=30.0, bytes=64 << 20)


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The response to a fetch.

    ``url`` is the final URL. ``mime`` is in lower case without parameters; ``charset`` is what the server declared, and
    may be wrong or empty.
    """

    url: str
    mime: str
    charset: str
    data: bytes = field(default=b"", repr=False)

    @property
    def text(self) -> str:
        try:
            return self.data.decode(self.charset or "utf-8", "replace")
        except LookupError:
            return self.data.decode("utf-8", "replace")


class Fetcher:
    """Fetches URLs that ``guard`` and the policy ``egress`` allow. If the policy refuses a fetch, the error
    contains the ``purpose`` of the fetch."""

    def __init__(self, guard: Guard, egress: EgressPolicy) -> None:
        self._guard = guard
        self._egress = egress
        self._load_certificates: ssl.SSLContext | None = None

    async def get(self, url: str, bounds: FetchLimits = PAGE, *, purpose: str = "a page of the web") -> FetchResult:
        """Return the complete response. Raises InvalidRequest, Forbidden, LocalOnly, FetchFailed."""
        async with self.open(url, bounds, purpose=purpose) as (answer, pieces):
            return replace(answer, data=b"".join([piece async for piece in pieces]))

    @asynccontextmanager
    async def open(
        self, url: str, bounds: FetchLimits = PAGE, *, purpose: str = "a page of the web"
    ) -> AsyncIterator[tuple[FetchResult, AsyncGenerator[bytes, None]]]:
        """Yield the response headers and the body as it arrives.

        The time limit covers the whole ``async with`` block. Raises InvalidRequest, Forbidden, LocalOnly and
        FetchFailed, also while the body is read.
        """
        try:
            async with (
                asyncio.timeout(bounds.total_s),
                self._follow_redirects(url, bounds, purpose) as (place, response),
            ):
                answer = _describe_response(place, response)
                _check(answer, response, bounds)
                async with aclosing(_iterate_body(answer, response, bounds)) as pieces:
                    yield answer, pieces
        except TimeoutError:
            raise FetchFailed(f"{_shorten_url(url)} did not arrive within {bounds.total_s:g} s.") from None

    @asynccontextmanager
    async def _follow_redirects(
        self, url: str, bounds: FetchLimits, purpose: str
    ) -> AsyncIterator[tuple[FetchTarget, httpx.Response]]:
        """Follow redirects. Yields (target, response) of the first response that is not a redirect."""
        for _ in range(REDIRECTS + 1):
            self._egress.check(url, purpose)
            place = await self._guard.check(url)
            async with self._send_request(place, bounds) as response:
                if response.status_code not in MOVED or "location" not in response.headers:
                    yield place, response
                    return
                url = urllib.parse.urljoin(place.url, response.headers["location"])
        raise FetchFailed(f"{_shorten_url(url)} was redirected more than {REDIRECTS} times.")

    @asynccontextmanager
    async def _send_request(self, place: FetchTarget, bounds: FetchLimits) -> AsyncIterator[httpx.Response]:
        """Send the request over a new connection. A connection for another host name cannot be reused, since it has not
        verified the certificate of this name."""
        client = await self._client(place, bounds)
        import httpx  # the module is loaded already

        async with client:
            problem: httpx.HTTPError | None = None
            for address in place.addresses[:ADDRESSES]:
                try:
                    response = await client.send(_build_request(client, place, address), stream=True)
                except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                    problem = error
                    continue
                except httpx.HTTPError as error:
                    raise FetchFailed(f"{place.host} does not answer: {_describe_error(error)}.") from None
                async with aclosing(response):
                    yield response
                return
            raise FetchFailed(f"{place.host} cannot be reached: {_describe_error(problem)}.")

    async def _client(self, place: FetchTarget, bounds: FetchLimits) -> httpx.AsyncClient:
        if self._load_certificates is None:
            self._load_certificates = await asyncio.to_thread(_load_certificates)
        import httpx  # the module is loaded already, by another thread

        connect_s = bounds.connect_s / min(len(place.addresses), ADDRESSES)
        return httpx.AsyncClient(
            verify=self._load_certificates,
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(bounds.total_s, connect=connect_s),
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=0),
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "gzip, deflate", "Accept-Language": "en, *;q=0.5"},
        )


def _load_certificates() -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()


def _build_request(client: httpx.AsyncClient, place: FetchTarget, address: str) -> httpx.Request:
    """Build a request to the checked IP address. The host name is in the Host header, and is used to verify the
    certificate."""
    import httpx

    url = httpx.URL(place.url)
    named = {} if address == place.host else {"sni_hostname": place.host}
    host = url.netloc.decode("ascii")
    return client.build_request("GET", url.copy_with(host=address), headers={"Host": host}, extensions=named)


def _describe_response(place: FetchTarget, response: httpx.Response) -> FetchResult:
    kind = response.headers.get("content-type", "")
    return FetchResult(place.url, kind.partition(";")[0].strip().lower(), response.charset_encoding or "")


def _check(answer: FetchResult, response: httpx.Response, bounds: FetchLimits) -> None:
    if not response.is_success:
        raise FetchFailed(
            f"{_shorten_url(answer.url)} answered HTTP {response.status_code}.",
            details={"status": response.status_code},
        )
    if bounds.types and not answer.mime.startswith(bounds.types):
        raise FetchFailed(
            f"{_shorten_url(answer.url)} has the type {answer.mime or 'unknown'}, which is not supported here."
        )
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length) > bounds.bytes:
        raise _too_large(answer, bounds)


async def _iterate_body(
    answer: FetchResult, response: httpx.Response, bounds: FetchLimits
) -> AsyncGenerator[bytes, None]:
    """Yield the decompressed body. Raises FetchFailed when it exceeds the limit, since a small response may expand to
    gigabytes."""
    import httpx

    unpack = create_decompressor(response.headers.get("content-encoding", ""))
    bytes_left = bounds.bytes
    try:
        async for raw in response.aiter_raw():
            for piece in unpack(raw):
                bytes_left -= len(piece)
                if bytes_left < 0:
                    raise _too_large(answer, bounds)
                yield piece
    except httpx.HTTPError as error:
        raise FetchFailed(f"{_shorten_url(answer.url)} ended early: {_describe_error(error)}.") from None


def _too_large(answer: FetchResult, bounds: FetchLimits) -> FetchFailed:
    return FetchFailed(
        f"{_shorten_url(answer.url)} has more than {bounds.bytes / 2**20:g} MiB, so the rest was not read."
    )


def _shorten_url(url: str) -> str:
    return url if len(url) <= 200 else f"{url[:200]}…"


def _describe_error(error: Exception | None) -> str:
    return (str(error) if error else "").rstrip(".")[:300] or type(error).__name__

"""Sends HTTP requests to one server: authenticates them, repeats failed ones, and raises the server's errors as the
classes of ``errors.py``."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from agent_kernel.client.discovery import ServerAddress
from agent_kernel.core.errors import AgentKernelError, Forbidden, NotFound, ServerUnreachable, from_json

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 60.0
STREAM_S = 35.0
"""Longest silence of a stream in seconds. The server sends a comment every 10 s; after three missed comments the
connection counts as lost."""
CONNECT_S = 10.0
PAUSES_S = (0.2, 0.5, 1.0, 2.0)
"""Pauses in seconds before the second and each later attempt."""
PATIENCE_S = 30.0
"""Longest pause in seconds that the client makes when a server asks for one (Retry-After). If the server asks for a
longer pause, the client does not retry."""
GATEWAY = frozenset({502, 503, 504})
"""The status codes that a proxy returns while the server restarts."""
Query = Mapping[str, str | int | float | None]


class RequestOptions(TypedDict, total=False):
    """Options of a request. Query parameters that are None are left out. ``repeatable`` means that the server
    recognises a repeated request and returns the result of the first attempt, so that the request can always be
    retried."""

    query: Query | None
    headers: Mapping[str, str] | None
    repeatable: bool


class ServerConnection:
    """A connection to one server, for one event loop.

    ``retries`` is the number of attempts after the first. A request is retried if it only reads, if the server
    recognises a repeated request, or if it certainly was not processed (no connection, status 429, or status 503 with
    Retry-After).
    """

    def __init__(
        self,
        place: ServerAddress,
        *,
        timeout_s: float = TIMEOUT_S,
        retries: int = len(PAUSES_S),
        verify: ssl.SSLContext | bool | None = None,
    ) -> None:
        self.place = place
        self._timeout_s = timeout_s
        self._retries = retries
        self._verify = verify
        self._http: httpx.AsyncClient | None = None
        self._opening = asyncio.Lock()

    async def call(self, method: str, path: str, body: Any = None, **options: Unpack[RequestOptions]) -> dict[str, Any]:
        """Send a request and return the JSON response. Raises the error that the server returns, or
        ServerUnreachable."""
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        if content is not None:
            options["headers"] = {"Content-Type": "application/json", **(options.get("headers") or {})}
        response = await self.send(method, path, content, **options)
        return json_of(response) if response.content else {}

    async def send(
        self,
        method: str,
        path: str,
        content: bytes | AsyncIterator[bytes] | None = None,
        **options: Unpack[RequestOptions],
    ) -> httpx.Response:
        """Send a request and return the whole response. A request whose body is a stream is not retried. Raises the
        errors of ``call``."""
        can_repeat = isinstance(content, bytes) or content is None
        repeatable = method == "GET" or options.get("repeatable", False)
        for attempt in range(self._retries + 1):
            last = attempt == self._retries or not can_repeat
            try:
                async with self._open(method, path, content, options, self._timeout_s) as response:
                    await response.aread()
                    return response
            except RefusedResponse as refusal:
                pause = refusal.pause(PAUSES_S[min(attempt, len(PAUSES_S) - 1)], repeatable=repeatable)
                if last or pause is None:
                    raise refusal.error from None
            except ServerUnreachable as error:
                begun = error.details.get("begun", True)
                if last or (begun and not repeatable):
                    raise
                pause = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, **options: Unpack[RequestOptions]
    ) -> AsyncIterator[tuple[Mapping[str, str], AsyncIterator[bytes]]]:
        """Send a request and yield (headers, chunks of the body). Does not retry. Raises the errors of ``call``, also
        while the chunks are read."""
        try:
            async with self._open(method, path, None, options, STREAM_S) as response:
                yield response.headers, response.aiter_bytes()
        except RefusedResponse as refusal:
            raise refusal.error from None

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        content: bytes | AsyncIterator[bytes] | None,
        options: RequestOptions,
        idle_s: float,
    ) -> AsyncIterator[httpx.Response]:
        import httpx

        headers, timeout = options.get("headers"), httpx.Timeout(idle_s, connect=CONNECT_S)
        params = {name: value for name, value in (options.get("query") or {}).items() if value is not None}
        async with AsyncExitStack() as open_response:
            try:
                http = await self._client()
                response = await open_response.enter_async_context(
                    http.stream(method, path, content=content, params=params, headers=headers, timeout=timeout)
                )
                if response.status_code >= 300:  # a redirection leads to a page for users, such as a login form
                    await response.aread()
                    raise RefusedResponse(response)
                yield response
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                raise _unreachable(error, begun=False) from error
            except (httpx.TransportError, httpx.StreamError) as error:
                raise _unreachable(error, begun=True) from error

    async def _client(self) -> httpx.AsyncClient:
        """Create the HTTP client on first use, in a thread, because loading the library and the certificates takes a
        while."""
        async with self._opening:
            if self._http is None:
                self._http = await asyncio.to_thread(self._create_client)
            return self._http

    def _create_client(self) -> httpx.AsyncClient:
        import httpx

        place = self.place
        return httpx.AsyncClient(
            base_url=place.url,
            headers={**place.headers, "Accept": "application/json", "User-Agent": "agent-kernel-client"},
            verify=_tls(place) if self._verify is None else self._verify,
            trust_env=not place.is_here,  # Requests to this machine never use a proxy.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )


class RefusedResponse(Exception):
    """A response with a status of 300 or more; ``error`` is the exception for the caller."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response.status_code)
        self.error = _refusal(response)
        self._status = response.status_code
        self._wait = response.headers.get("Retry-After", "")

    def pause(self, usual: float, *, repeatable: bool) -> float | None:
        """Return the pause in seconds before the next attempt; None if the request must not be sent again. ``usual`` is
        the pause if the server asks for none. ``repeatable`` means that the request may always be retried."""
        wait = float(self._wait) if re.fullmatch(r"\d{1,6}(\.\d+)?", self._wait) else None
        if wait is not None and self._status in (429, 503):
            return max(wait, usual) if wait <= PATIENCE_S else None
        if self._status in GATEWAY and repeatable and isinstance(self.error, ServerUnreachable):
            return usual
        return None


def json_of(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object of a response. Raises AgentKernelError for anything else, such as an HTML page."""
    try:
        return dict(response.json())
    except (ValueError, TypeError) as error:
        problem = f"The server answered with status {response.status_code} and a body that is not a JSON object."
        raise AgentKernelError(
            problem, hint="Check that the URL is that of a Jupyter server with agent-kernel."
        ) from error


def _tls(place: ServerAddress) -> ssl.SSLContext | bool:
    """Return the TLS settings: False for plain HTTP, else a context. Certificates are verified except on loopback:
    Jupyter servers often use self-signed ones, and packets on loopback never leave this machine."""
    if not place.secure:
        return False  # nothing is verified, so no certificates are loaded
    context = ssl.create_default_context()
    if place.is_here:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _refusal(response: httpx.Response) -> AgentKernelError:
    status, id = response.status_code, response.headers.get("X-Request-ID", "")
    error = _parse_error(response)
    if error is None and status in (401, 403):
        error = Forbidden(
            "The server does not accept this token.",
            hint="The token may have expired. Pass a valid one: Client(url, token=...).",
        )
    elif error is None and status == 404:
        error = NotFound(
            "The server has no such route: it runs without the agent-kernel extension, or with an older version.",
            hint="This command lists its extensions: jupyter server extension list",
        )
    elif error is None and status < 400:
        error = Forbidden(
            "The server redirects to a page where a user must log in.", hint="Pass a token: Client(url, token=...)."
        )
    elif error is None and status in GATEWAY:
        error = ServerUnreachable(
            f"The server does not answer (a proxy returned status {status}).",
            hint="Try again in a moment: the server may be restarting.",
        )
    error = error or AgentKernelError(f"The server answered with the status {status}.", hint="See the server's log.")
    error.request_id = error.request_id or id
    return error


def _parse_error(response: httpx.Response) -> AgentKernelError | None:
    """Return the error that the response describes, or None if the response is not in our format."""
    try:
        body = response.json()["error"]
        error = from_json(body)
        error.request_id = str(body.get("request_id", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return error


def _unreachable(error: Exception, *, begun: bool) -> ServerUnreachable:
    hint = (
        "The server may have executed the request: check before you repeat it."
        if begun
        else "Check that the server runs at this URL."
    )
    cause = str(error) or type(error).__name__
    return ServerUnreachable(f"The server does not answer ({cause}).", hint=hint, details={"begun": begun})

"""Sends HTTP requests to one server. Redirects are not followed, and compressed answers are not accepted.

The module uses httpx and not OpenAI's SDK. The SDK sends OpenAI's key, organisation and project from the environment to
any configured host, follows redirects, reads lines of any length, and repeats requests by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agent_kernel.core.errors import EngineError, EngineUnreachable
from agent_kernel.core.wire.server_sent_events import EventDecoder
from agent_kernel.engines.openai_api.api_keys import key_of
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.error_mapping import Refusal, plain
from agent_kernel.engines.openai_api.retry import EngineFault
from agent_kernel.engines.openai_api.token_timeouts import TokenTimeouts

if TYPE_CHECKING:
    import httpx

MAX_EVENT = 8 << 20
"""Maximum size of an event in bytes. Some servers send a whole call, with all of its code, in one event."""
MAX_ANSWER = 64 << 20
"""Maximum size of an answer in bytes."""
DONE = "[DONE]"
END: Mapping[str, Any] = MappingProxyType({})
"""Represents the server's end marker. It is compared by identity, so that no server can send it as data."""
MAX_REFUSAL = 64 << 10
MAX_LIST = 8 << 20
REFUSAL_S = 10.0
LIST_S = 10.0
KEEP_S = 2.0
"""Seconds for which an idle connection stays open. uvicorn closes idle connections after 5 s, and a request must not
use a connection that the server is closing."""
LAST_BYTES_S = 0.1
"""Seconds to wait for the end of the stream after the last event, so that the connection can be reused."""


class RequestRefused(Exception):
    """The server answered with an error, which ``refusal`` describes."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.words)
        self.refusal = refusal


class EndpointConnection:
    """Sends requests to ``endpoint``, any number of them at the same time. Connections stay open between requests."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._http: httpx.AsyncClient | None = None
        self._opening = asyncio.Lock()

    async def events(
        self, body: Mapping[str, Any], timeouts: TokenTimeouts, affinity: str = ""
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """Send ``body`` to ``chat/completions`` and yield the objects of the answer, then END. ``timeouts`` sets the
        time limits. ``affinity`` is sent as the header x-session-id, which Ray Serve and other routers read. Closing
        the generator closes the connection. Raises EngineFault, RequestRefused, EngineError."""
        headers = {"x-session-id": affinity} if affinity else {}
        async with self._send("POST", "chat/completions", body, timeouts, headers) as response:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                yield parse_object((await self._read(response, timeouts, MAX_ANSWER)).decode("utf-8", "replace"))
                yield END
                return
            decoder = EventDecoder(MAX_EVENT, MAX_ANSWER, EngineError)
            async with aclosing(self._pieces(response, timeouts)) as pieces:
                async for piece in pieces:
                    for event in decoder.feed(piece):
                        if event.data.strip() == DONE:
                            yield END
                            with contextlib.suppress(TimeoutError, EngineFault, EngineError):
                                async with asyncio.timeout(LAST_BYTES_S):
                                    await anext(pieces, None)
                            return
                        yield parse_object(event.data)
            # If the stream was cut off within an event, its beginning is dropped: the answer has no end mark either.
            with contextlib.suppress(EngineError):
                for event in decoder.end():
                    yield END if event.data.strip() == DONE else parse_object(event.data)

    async def models(self) -> list[Mapping[str, Any]]:
        """Return the entries of the server's list of models, which may be empty. Raises EngineFault, RequestRefused,
        EngineError."""
        timeouts = TokenTimeouts(self._endpoint.host, LIST_S, LIST_S)
        async with self._send("GET", "models", None, timeouts) as response:
            raw = await self._read(response, timeouts, MAX_LIST)
        listed = parse_object(raw.decode("utf-8", "replace")).get("data")
        return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    @asynccontextmanager
    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeouts: TokenTimeouts,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> AsyncIterator[httpx.Response]:
        http = await self._client()
        import httpx  # the module was already imported, in another thread

        key = key_of(self._endpoint)
        sent = {**headers, **({"Authorization": f"Bearer {key}"} if key else {})}
        # A GET request, for the list of models, is rarely repeated, so its connection is not kept open.
        sent |= {} if method == "POST" else {"Connection": "close"}
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace") if body is not None else None
        request = http.build_request(method, f"{self._endpoint.url}/{path}", content=content, headers=sent)
        try:
            response = await timeouts.wait(http.send(request, stream=True))
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        try:
            await self._check(response, key)
            yield response
        finally:
            await response.aclose()

    async def _client(self) -> httpx.AsyncClient:
        async with self._opening:
            if self._http is None:
                # Creating a client reads the certificates, which takes time.
                self._http = await asyncio.to_thread(_open_client, self._endpoint)
            return self._http

    async def _check(self, response: httpx.Response, key: str) -> None:
        host = self._endpoint.host
        if response.is_redirect:
            to = urllib.parse.urlsplit(response.headers.get("location", ""))
            where = plain(f"{to.hostname or host}{to.path}")
            raise EngineError(
                f"{host} redirects requests to {where}. agent-kernel does not follow redirects: keys and conversations "
                "are sent only to the configured address.",
                hint="Set the url of this engine to the right address.",
                details={"host": host, "status": response.status_code},
            )
        if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            raise EngineError(
                f"{host} sent a compressed answer, which agent-kernel did not request.", details={"host": host}
            )
        if response.status_code != 200:
            raw = bytearray()
            # The server has refused the request even if the body of its error is late or broken.
            with contextlib.suppress(EngineFault, EngineError):
                await self._read(response, TokenTimeouts(host, REFUSAL_S, REFUSAL_S), MAX_REFUSAL, raw)
            raise RequestRefused(
                Refusal.read(
                    response.status_code, bytes(raw[:MAX_REFUSAL]), response.headers.get("retry-after", ""), key
                )
            )

    async def _read(
        self, response: httpx.Response, timeouts: TokenTimeouts, max_bytes: int, raw: bytearray | None = None
    ) -> bytes:
        """Return the body of a response. If ``raw`` is given, the bytes are appended to it as they arrive, so that they
        remain after an error. Raises EngineError after more than ``max_bytes`` bytes."""
        raw = bytearray() if raw is None else raw
        async with aclosing(self._pieces(response, timeouts)) as pieces:
            async for piece in pieces:
                raw += piece
                if len(raw) > max_bytes:
                    raise EngineError(
                        f"{self._endpoint.host} sent more than {max_bytes >> 20} MiB; the rest was not read."
                    )
        return bytes(raw)

    async def _pieces(self, response: httpx.Response, timeouts: TokenTimeouts) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a response as they arrive, without decompressing them."""
        import httpx

        async with aclosing(response.aiter_raw()) as raw:  # type: ignore[type-var]  # it is an async generator
            while True:
                try:
                    piece = await timeouts.wait(anext(raw))
                except StopAsyncIteration:
                    return
                except httpx.HTTPError as error:
                    raise self._unreachable(error) from None
                yield piece

    def _unreachable(self, error: httpx.HTTPError) -> EngineFault:
        """Convert an error of httpx to an EngineFault. The original error is not chained to it, because it contains the
        request and thus the key."""
        cause = plain(str(error)).rstrip(".") or type(error).__name__
        fault = EngineUnreachable(
            f"{self._endpoint.host} does not answer: {cause}.",
            hint="Check that the server is running, and the url of this engine.",
            details={"host": self._endpoint.host, "cause": type(error).__name__},
        )
        return EngineFault(fault, may_retry=True)


def _open_client(endpoint: Endpoint) -> httpx.AsyncClient:
    """Return the HTTP client for an endpoint. For a server on this machine, it uses no proxy."""
    import httpx

    return httpx.AsyncClient(
        follow_redirects=False,
        http2=False,
        trust_env=not endpoint.local,
        verify=endpoint.url.startswith("https:"),
        timeout=httpx.Timeout(None, connect=endpoint.connect_s),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=KEEP_S),
        headers={"Accept-Encoding": "identity", "User-Agent": "agent-kernel", "Content-Type": "application/json"},
    )


def parse_object(data: str) -> Mapping[str, Any]:
    """Return the JSON object in a text. Raises EngineError for anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise EngineError(
            "The server sent something that is not a JSON object.",
            hint="Check that the url is that of an OpenAI-compatible server; it commonly ends in /v1.",
        )
    return value

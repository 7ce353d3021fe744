"""Offers tools that a client declares and another program runs. Each call is sent as a POST to the server's
``dispatch_url``.

The wire format is that of mistral.rs: the request is ``{"name", "arguments"}``; the response is ``{"content": text}``
or plain text, with a 2xx status.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.parse
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent_kernel.core.egress import EgressPolicy, is_here
from agent_kernel.core.errors import FetchFailed, InvalidRequest, LocalOnly
from agent_kernel.core.events import Notice
from agent_kernel.core.messages import shorten
from agent_kernel.core.net.decompression import create_decompressor
from agent_kernel.core.protocols import ToolContext, ToolOutput, ToolSpec
from agent_kernel.core.wire.retry_after import parse_retry_after
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 30.0
"""Maximum seconds for one call, all attempts included."""
CONNECT_S = 5.0
TRIES = 3
PAUSE_S = 0.3
"""Seconds to wait before the next attempt after a server has refused the connection; doubled after each attempt."""
MAX_ANSWER = 1 << 20
TOLD = 300
"""Maximum number of characters of an error response that the model reads."""
BUSY = (429, 503)
NOBODY = (
    "These tools are not offered to the model, because no program runs them: {names}. Set dispatch_url, or run them in "
    "the client."
)


@dataclass(frozen=True, slots=True)
class DispatchResponse:
    """The response of the tool's server; ``wait`` is its Retry-After in seconds, None if it sent none."""

    status: int
    body: str
    wait: float | None = None

    @property
    def text(self) -> str:
        """The text for the model: the field ``content`` if the body is a JSON object with that field, else the whole
        body."""
        try:
            parsed = json.loads(self.body)
        except ValueError:
            return self.body
        content = parsed.get("content") if isinstance(parsed, dict) else None
        return content if isinstance(content, str) else self.body


class DispatchRefused(Exception):
    """Raised if no connection could be established, so that the call was certainly not sent."""


class Dispatcher:
    """Posts calls to ``url``. ``key_env`` is the environment variable with the key for this URL; the key is sent to no
    other URL."""

    def __init__(self, url: str, key_env: str, egress: EgressPolicy, timeout_s: float = TIMEOUT_S) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidRequest("The dispatch_url must begin with http:// or https://.")
        self.url = url
        self._key_env = key_env
        self._egress = egress
        self._timeout_s = timeout_s

    async def run(self, context: ToolContext) -> ToolOutput:
        """Run one call. Raises LocalOnly, FetchFailed, and InvalidRequest if the key is missing."""
        self._egress.check(self.url, "the call of a tool")
        key = self._key()
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                answer, tries = await self._answer(context, key)
        except TimeoutError:
            if not limit.expired():
                raise
            return ToolOutput(f"The tool's server did not answer within {self._timeout_s:g} s.", "timeout")
        text = answer.text.replace(key, "***") if key else answer.text
        details = {"status": answer.status, "tries": tries}
        if 200 <= answer.status < 300:
            return ToolOutput(text or "(it said nothing)", details=details)
        message = f"The tool's server answered HTTP {answer.status}. {shorten(text, TOLD)}".strip()
        return ToolOutput(message, "error", details=details)

    async def _answer(self, context: ToolContext, key: str) -> tuple[DispatchResponse, int]:
        """Post the call and return the response and the number of attempts.

        The post is retried only if the call cannot have run: the connection was refused, or the server was too busy and
        its response states when to retry.
        """
        for attempt in range(1, TRIES + 1):
            try:
                answer = await self._post(context, key)
                pause = answer.wait if answer.status in BUSY else None
            except DispatchRefused as refused:
                if attempt == TRIES:
                    raise FetchFailed(f"The tool's server cannot be reached: {refused}.") from None
                pause = PAUSE_S * 2 ** (attempt - 1)
            if pause is None or attempt == TRIES:
                return answer, attempt
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    async def _post(self, context: ToolContext, key: str) -> DispatchResponse:
        import httpx

        call = context.call
        body = json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)
        client = httpx.AsyncClient(
            trust_env=not is_here(self.url),
            follow_redirects=False,
            timeout=httpx.Timeout(self._timeout_s, connect=CONNECT_S),
        )
        try:
            async with (
                client,
                client.stream(
                    "POST", self.url, content=body.encode("utf-8", "replace"), headers=_headers(context, key)
                ) as response,
            ):
                wait = parse_retry_after(response.headers.get("retry-after", ""))
                return DispatchResponse(response.status_code, await _body(response), wait)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise DispatchRefused(_cause(error)) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise FetchFailed(f"The tool's server did not answer: {_cause(error)}.") from None

    def _key(self) -> str:
        if not self._key_env:
            return ""
        key = os.environ.get(self._key_env, "").strip()
        if not key or not key.isascii() or not key.isprintable():
            raise InvalidRequest(
                f"The environment variable {self._key_env}, which holds the key of the tool's server, is not set."
            )
        return key


class DispatchedTool:
    def __init__(self, spec: ToolSpec, dispatcher: Dispatcher) -> None:
        self.spec = replace(spec, kind="dispatch", where="server", source="external")
        self._dispatcher = dispatcher

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return await self._dispatcher.run(context)


class DispatchTools:
    """Offers those functions of a request whose calls the server sends to a URL.

    ``url`` is the setting ``dispatch_url`` of the server. A request that comes from this process may name another URL;
    the key is not sent to that URL.
    """

    def __init__(self, url: str, key_env: str, egress: EgressPolicy, timeout_s: float = TIMEOUT_S) -> None:
        self._egress = egress
        self._timeout_s = timeout_s
        self._dispatcher = Dispatcher(url, key_env, egress, timeout_s) if url else None

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        request = occasion.request
        specs = [
            spec
            for spec in request.functions
            if spec.name not in request.client_tools
            and spec.where != "caller"
            and occasion.wants("dispatch", "functions", spec.name)
        ]
        dispatcher = self._dispatcher_for(request.dispatch_url)
        if not specs:
            return OfferedTools()
        if dispatcher is None:
            occasion.emit(Notice("warning", NOBODY.format(names=", ".join(spec.name for spec in specs))))
            return OfferedTools()
        try:
            self._egress.check(dispatcher.url, "the call of a tool")
        except LocalOnly as error:
            occasion.emit(Notice("warning", str(error)))
            return OfferedTools()
        return OfferedTools(tuple(DispatchedTool(spec, dispatcher) for spec in specs))

    def _dispatcher_for(self, url: str) -> Dispatcher | None:
        if not url or (self._dispatcher is not None and url == self._dispatcher.url):
            return self._dispatcher
        return Dispatcher(url, "", self._egress, self._timeout_s)


def _headers(context: ToolContext, key: str) -> dict[str, str]:
    """Return the headers of a request. Ids may contain any character, so they are percent-encoded."""
    session = urllib.parse.quote(context.key.id, safe=_PLAIN)
    call = urllib.parse.quote(context.call.id, safe=_PLAIN)
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/plain",
        "Accept-Encoding": "gzip, deflate",
        "User-Agent": "agent-kernel",
        "X-Session-Id": session,
        "X-Call-Id": call,
        "Idempotency-Key": f"{context.turn}:{context.round}:{call}",
    }
    return headers | ({"Authorization": key if " " in key else f"Bearer {key}"} if key else {})


_PLAIN = "!#$&'()*+,/:;=?@[]~"


async def _body(response: httpx.Response) -> str:
    """Read the body of a response and return it. Raises FetchFailed if it is too large or has an unsupported
    encoding."""
    unpack = create_decompressor(response.headers.get("content-encoding", ""))
    body = bytearray()
    async with aclosing(response.aiter_raw()) as raws:  # type: ignore[type-var]  # it is an async generator
        async for raw in raws:
            for piece in unpack(raw):
                body += piece
                if len(body) > MAX_ANSWER:
                    raise FetchFailed(
                        f"The tool's server sent more than {MAX_ANSWER >> 20} MiB; the rest was not read."
                    )
    return body.decode("utf-8", "replace")


def _cause(error: Exception) -> str:
    return str(error).rstrip(".")[:TOLD] or type(error).__name__

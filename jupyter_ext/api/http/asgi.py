"""Runs an ASGI application behind a tornado handler: passes one request to it, and sends its response as it is
produced.

Only the features that the transport of the MCP SDK needs are implemented: HTTP, a complete request body, a response
that may stream, and the disconnect message. Cookies and credentials are not passed to the application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Set
from typing import Any, TypeAlias
from urllib.parse import quote

from tornado.iostream import StreamClosedError
from tornado.web import RequestHandler

Message: TypeAlias = MutableMapping[str, Any]
Application: TypeAlias = Callable[
    [dict[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
WITHHELD = frozenset({"authorization", "cookie", "x-api-key", "x-xsrftoken"})
"""Headers that the application does not get: credentials."""
OWN = frozenset({b"content-length", b"transfer-encoding", b"connection", b"date", b"server"})
"""Headers that tornado writes itself."""


class AsgiExchange:
    """One request of ``handler``. Call ``leave`` when the client has disconnected."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._left = asyncio.Event()
        self._asked = False

    def leave(self) -> None:
        self._left.set()

    @property
    def method(self) -> str | None:
        return self._handler.request.method

    @property
    def status(self) -> int:
        return self._handler.get_status()

    def header(self, name: str) -> str:
        """Return a header of the request; empty if the request does not have it."""
        return str(self._handler.request.headers.get(name, ""))

    def respond(self, status: int) -> None:
        """Send a response with this status and without a body. No application is called."""
        self._handler.set_status(status)

    async def run(self, application: Application, withheld: Set[str] = frozenset(), **extra: Any) -> None:
        """Pass the request to the application, without the headers ``withheld`` (in lower case)."""
        await application(self._scope(withheld, extra), self._receive, self._send)

    def _scope(self, withheld: Set[str], extra: Mapping[str, Any]) -> dict[str, Any]:
        request = self._handler.request
        headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
            for name, value in request.headers.get_all()
            if name.lower() not in WITHHELD | withheld
        ]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.protocol,
            "path": request.path,
            "raw_path": quote(request.path).encode(),
            "query_string": request.query.encode("latin-1", "replace"),
            "root_path": "",
            "headers": headers,
            "client": None,
            "server": None,
            **extra,
        }

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._handler.request.body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        """Write a message of the application to the client. After the client has left, nothing is written; the
        application learns of that from ``_receive``."""
        if self._left.is_set():
            return
        try:
            if message["type"] == "http.response.start":
                self._begin(message)
                if dict(message.get("headers", [])).get(b"content-type", b"").startswith(b"text/event-stream"):
                    await self._handler.flush()  # the first event may come later than a client waits for the headers
                return
            if body := message.get("body", b""):
                self._handler.write(body)
            if message.get("more_body", False):
                await self._handler.flush()
        except StreamClosedError:
            self._left.set()

    def _begin(self, message: Message) -> None:
        self._handler.set_status(message["status"])
        # Without this, tornado would send its default, HTML, if the application sets no Content-Type.
        self._handler.clear_header("Content-Type")
        for name, value in message.get("headers", []):
            if name.lower() not in OWN:
                self._handler.set_header(name.decode("latin-1"), value.decode("latin-1"))

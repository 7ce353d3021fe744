"""The HTTP client of a kernel for its Jupyter server: JSON calls and server-sent events.

Uses ``http.client`` only, because the kernel's environment may have no HTTP library.
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import ssl
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.errors import AgentKernelError, Forbidden, ServerUnreachable, from_json
from agent_kernel.core.wire.server_sent_events import EventDecoder, ServerEvent

CALL_TIMEOUT_S = 30.0
STREAM_TIMEOUT_S = 35.0
"""Seconds without data after which a stream counts as lost. The server sends a comment every 10 s, so three comments
are missing then."""
CHUNK_BYTES = 64 << 10
OF_A_GATEWAY = "KERNEL_AGENT_KERNEL_"
"""Prefix that the names of our environment variables have in a kernel that a gateway starts: gateways pass on only
variables whose names begin with KERNEL_."""
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
NO_SERVER = ServerUnreachable(
    "This kernel was not started by a Jupyter server with agent-kernel.",
    hint="%agent start starts a server for this kernel alone. Or install agent-kernel where the Jupyter server runs, "
    "restart it, and open the notebook again.",
)


@dataclass(frozen=True, slots=True)
class ServerClient:
    """The HTTP client for the server of this kernel. ``url`` includes the base URL and ends with a slash; ``token`` is
    this kernel's own credential."""

    url: str
    kernel: str
    token: str = field(repr=False)

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> ServerClient | None:
        """Create the client from environment variables. Removes the token from ``environment``, so that programs the
        user starts do not inherit it."""
        _accept_gateway_variables(environment)
        token = environment.pop("AGENT_KERNEL_TOKEN", "")
        url = environment.get("AGENT_KERNEL_URL", "")
        if not url or not token:
            return None
        return cls(url if url.endswith("/") else url + "/", environment.get("AGENT_KERNEL_ID", ""), token)

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        revision: int | None = None,
        timeout: float = CALL_TIMEOUT_S,
    ) -> dict[str, Any]:
        """Send a request and return the JSON response. A bytes body is sent unchanged. ``revision`` is the revision of
        the session on which the request is based; the server refuses the request if the session has a different
        revision by then. Raises the error that the server returns, or ServerUnreachable."""
        more = {} if revision is None else {"If-Match": f'"{revision}"'}
        raw, _ = self._exchange(method, path, body, more, timeout=timeout)
        try:
            return dict(json.loads(raw)) if raw else {}
        except ValueError as error:
            raise describe_unreachable(error) from error

    def raw(
        self, path: str, *, max_bytes: int | None = None, timeout: float = CALL_TIMEOUT_S
    ) -> tuple[bytes, http.client.HTTPMessage]:
        """Return (body, headers) of a GET request. Raises the same errors as ``call``, and AgentKernelError for a body
        of more than ``max_bytes`` bytes."""
        return self._exchange("GET", path, None, {"Accept": "*/*"}, timeout=timeout, max_bytes=max_bytes)

    def _exchange(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None,
        extra_headers: Mapping[str, str],
        *,
        timeout: float,
        max_bytes: int | None = None,
    ) -> tuple[bytes, http.client.HTTPMessage]:
        """Send a request on a connection of its own and return (body, headers) of the response. ``extra_headers`` are
        additional request headers."""
        connection = self._connection(timeout)
        try:
            response = self._send(connection, method, path, body, extra_headers)
            data = response.read(None if max_bytes is None else max_bytes + 1)
        except (OSError, http.client.HTTPException) as error:
            raise describe_unreachable(error) from error
        finally:
            connection.close()
        if max_bytes is not None and len(data) > max_bytes:
            raise AgentKernelError(f"The server's response is larger than {max_bytes >> 20} MiB and was not read.")
        return data, response.headers

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        opened: Callable[[http.client.HTTPConnection], None] = lambda connection: None,
    ) -> Iterator[tuple[http.client.HTTPMessage, Iterator[ServerEvent]]]:
        """Open a stream of server-sent events and yield (headers, events) once. ``opened`` is called with the
        connection, so that another thread can close it. Raises the server's error, OSError or HTTPException."""
        connection = self._connection(STREAM_TIMEOUT_S)
        opened(connection)
        with closing(connection):
            response = self._send(connection, method, path, body, {"Accept": "text/event-stream"})
            yield response.headers, _read_events(response)

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=timeout, context=_tls(parts.hostname or "")
            )
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None,
        extra_headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        headers = {"X-Agent-Kernel-Token": self.token, "Content-Type": "application/json", "Accept": "application/json"}
        target = f"{urllib.parse.urlsplit(self.url).path}agent/v1/{path}"
        if isinstance(body, Mapping):
            # Output of code can contain half of a surrogate pair (for example in a file name that is not UTF-8), which
            # the server refuses.
            body = json.dumps(body, ensure_ascii=False).encode(errors="replace")
        connection.request(method, target, body, {**headers, **extra_headers})
        response = connection.getresponse()
        if response.status >= 400:
            raise _refusal(response.status, response.read())
        return response


def _accept_gateway_variables(environment: MutableMapping[str, str]) -> None:
    """Copy variables that a gateway has passed on with the prefix OF_A_GATEWAY to their usual names. A variable that is
    already set under its usual name is not changed."""
    for name in [name for name in environment if name.startswith(OF_A_GATEWAY)]:
        environment.setdefault(name.removeprefix("KERNEL_"), environment.pop(name))


@functools.cache
def server_of_this_kernel() -> ServerClient | None:
    """Return the client of this process. Cached, because the token can be taken from the environment only once."""
    return ServerClient.from_environment(os.environ)


def quote_segment(value: str) -> str:
    """Percent-encode an id as one path segment."""
    return urllib.parse.quote(value, safe="")


def route(*segments: str) -> str:
    """Join path segments. Each is percent-encoded, so that an id cannot add a segment."""
    return "/".join(map(quote_segment, segments))


def _tls(host: str) -> ssl.SSLContext:
    """Return the TLS settings for ``host``. Certificates are verified except on loopback: Jupyter servers commonly use
    self-signed certificates, packets on loopback do not leave this machine, and the kernel got the port from its parent
    process."""
    context = ssl.create_default_context()
    if host in LOOPBACK:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _refusal(status: int, raw: bytes) -> AgentKernelError:
    try:
        return from_json(json.loads(raw)["error"])
    except (ValueError, KeyError, TypeError):
        pass
    if status == http.HTTPStatus.NOT_FOUND:
        return ServerUnreachable(
            "The Jupyter server has no agent-kernel extension.", hint="See: jupyter server extension list"
        )
    if status in (http.HTTPStatus.FORBIDDEN, http.HTTPStatus.UNAUTHORIZED):
        return Forbidden("The server does not know this kernel.", hint="Restart the kernel.")
    return AgentKernelError(f"The server answered with status {status}.", hint="See the server's log.")


def _read_events(response: http.client.HTTPResponse) -> Iterator[ServerEvent]:
    decoder = EventDecoder()
    while chunk := response.read1(CHUNK_BYTES):
        yield from decoder.feed(chunk)


def describe_unreachable(error: Exception) -> ServerUnreachable:
    return ServerUnreachable(
        f"The Jupyter server does not answer ({str(error) or type(error).__name__}).",
        hint="If it still runs, %agent status shows the state of the turn.",
    )

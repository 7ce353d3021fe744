"""The connection from a kernel to the Jupyter server that started it: HTTP calls and server-sent events.

``http.client`` and nothing else: the kernel may live in an environment that has no HTTP library.
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import ssl
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.errors import AgentKernelError, Forbidden, NotFound, ServerUnreachable, from_json
from agent_kernel.core.events import EVENT_TYPES, Event, TurnFinished

CALL_TIMEOUT_S = 30.0
STREAM_TIMEOUT_S = 35.0
"""The server sends a comment each 10 s; three missed ones mean that the connection is lost."""
PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Before each try to follow a lost stream again; a server that restarts needs a few seconds."""
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
NO_SERVER = ServerUnreachable(
    "This kernel was not started by a Jupyter server with agent-kernel.",
    hint="%agent start begins one for this kernel alone. Or install agent-kernel where the Jupyter server runs, "
    "restart it, and open the notebook again.",
)


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One server-sent event."""

    id: str
    event: str
    data: str


@dataclass(frozen=True, slots=True)
class ServerClient:
    """``url`` ends in a slash and includes the server's base URL; ``token`` is this kernel's own credential."""

    url: str
    kernel: str
    token: str = field(repr=False)

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> ServerClient | None:
        """Takes the token out of the environment, so that programs the person starts do not inherit it."""
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
        seen: int | None = None,
        timeout: float = CALL_TIMEOUT_S,
    ) -> dict[str, Any]:
        """The JSON answer. A body of bytes is sent as it is. ``seen`` is the revision of the session that the change is
        meant for. Raises the error that the server names, or ServerUnreachable."""
        connection = self._connection(timeout)
        more = {} if seen is None else {"If-Match": f'"{seen}"'}
        try:
            raw = self._send(connection, method, path, body, more).read()
            return dict(json.loads(raw)) if raw else {}
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _unreachable(error) from error
        finally:
            connection.close()

    def raw(self, path: str, *, most: int, timeout: float = CALL_TIMEOUT_S) -> tuple[bytes, http.client.HTTPMessage]:
        """(the body as it is, the headers). Raises as ``call`` does; also for more than ``most`` bytes."""
        connection = self._connection(timeout)
        try:
            response = self._send(connection, "GET", path, None, {"Accept": "*/*"})
            data = response.read(most + 1)
            if len(data) > most:
                raise AgentKernelError(f"That is larger than {most >> 20} MB.")
            return data, response.headers
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(error) from error
        finally:
            connection.close()

    def fetch(self, path: str, *, timeout: float = CALL_TIMEOUT_S) -> tuple[bytes, str, dict[str, int]]:
        """(a document, the suffix of its file's name, counts of what is not in it). Raises as ``call`` does."""
        connection = self._connection(timeout)
        try:
            response = self._send(connection, "GET", path, None, {"Accept": "*/*"})
            name = str(response.headers.get_filename("session.json"))
            return (
                response.read(),
                os.path.splitext(name)[1],
                json.loads(response.headers.get("X-Agent-Left-Out", "{}")),
            )
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _unreachable(error) from error
        finally:
            connection.close()

    def frames(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        opened: Callable[[http.client.HTTPConnection], None] = lambda connection: None,
    ) -> Iterator[ServerEvent]:
        """One stream to its end. ``opened`` gets the connection, for whoever must close it from another thread.
        Raises the server's error, OSError or HTTPException."""
        connection = self._connection(STREAM_TIMEOUT_S)
        opened(connection)
        try:
            yield from _frames(self._send(connection, method, path, body, {"Accept": "text/event-stream"}))
        finally:
            connection.close()

    def events(
        self,
        turn: str,
        after: int = 0,
        *,
        stored: str = "",
        opened: Callable[[http.client.HTTPConnection], None] = lambda c: None,
    ) -> Iterator[Event]:
        """The turn's events up to ``turn.finished``; a lost connection is taken up again where it broke. ``stored``
        names the session of a turn of which what is kept is wanted, with its pictures. Raises AgentKernelError when
        that is not possible."""
        kept = f"&stored=1&session={quoted(stored)}" if stored else ""
        lost = 0
        while True:
            try:
                for frame in self.frames("GET", f"turns/{quoted(turn)}/events?after={after}{kept}", opened=opened):
                    lost, after = 0, max(after, int(frame.id or 0))
                    if frame.event not in EVENT_TYPES:
                        continue  # a newer server announces what this version does not know
                    event = Event.from_json(json.loads(frame.data))
                    yield event
                    if isinstance(event.body, TurnFinished):
                        return
            except (NotFound, Forbidden) as error:
                raise _restarted(error) if lost else error from error
            except (OSError, http.client.HTTPException) as error:
                if lost == len(PAUSES_S):
                    raise _unreachable(error) from error
            if lost == len(PAUSES_S):
                raise _unreachable(EOFError("the stream ended early"))
            time.sleep(PAUSES_S[lost])
            lost += 1

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
        more: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        headers = {"X-Agent-Kernel-Token": self.token, "Content-Type": "application/json", "Accept": "application/json"}
        target = f"{urllib.parse.urlsplit(self.url).path}agent/v1/{path}"
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body)
        connection.request(method, target, sent, {**headers, **more})
        response = connection.getresponse()
        if response.status >= 400:
            raise _refusal(response.status, response.read())
        return response


@functools.cache
def server_of_this_kernel() -> ServerClient | None:
    """Cached because the token can be taken from the environment only once in the life of a process."""
    return ServerClient.from_environment(os.environ)


def quoted(value: str) -> str:
    """An id as one segment of a path."""
    return urllib.parse.quote(value, safe="")


def _tls(host: str) -> ssl.SSLContext:
    """A Jupyter server commonly has a self-signed certificate. It need not be verified on loopback, where the packets
    never leave this machine and the port is the one our parent process gave us; it is on every other address."""
    context = ssl.create_default_context()
    if host in LOOPBACK:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _frames(response: http.client.HTTPResponse) -> Iterator[ServerEvent]:
    fields: dict[str, list[str]] = {}
    for raw in iter(response.readline, b""):
        line = raw.decode().rstrip("\r\n")
        if line:
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        elif fields:
            if "data" in fields:
                number, kind = (fields.get(name, [""])[-1] for name in ("id", "event"))
                yield ServerEvent(number, kind, "\n".join(fields["data"]))
            fields = {}


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
        return Forbidden("The server does not know this kernel (any more).", hint="Restart the kernel.")
    return AgentKernelError(f"The server answered {status}.", hint="Its log has more.")


def _unreachable(error: Exception) -> ServerUnreachable:
    return ServerUnreachable(
        f"The Jupyter server does not answer ({str(error) or type(error).__name__}).",
        hint="If it still runs, %agent status says what became of the turn.",
    )


def _restarted(error: AgentKernelError) -> ServerUnreachable:
    return ServerUnreachable(
        "The Jupyter server was restarted and the turn was cut off; what it had done by then is kept in the session.",
        hint="Restart the kernel, then ask again." if isinstance(error, Forbidden) else "Ask again.",
    )

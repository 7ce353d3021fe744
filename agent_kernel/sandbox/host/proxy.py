"""Runs the proxy of a jail whose network mode is ``full``, for HTTP and CONNECT.

The server runs the proxy on a socket that listens inside the jail's network. It checks every target and connects to
exactly the address that was checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import AgentKernelError, Forbidden, InvalidRequest
from agent_kernel.core.net.addresses import is_own_address
from agent_kernel.core.net.guard import FetchTarget, Guard

MAX_HEAD = 65_536
MAX_CONNECTIONS = 64
"""Limit of concurrent connections of one session."""
HEAD_S = 30.0
CONNECT_S = 20.0
IDLE_S = 300.0
"""Seconds without traffic in either direction after which a connection is closed."""
CLOSE_S = 5.0
CHUNK = 65_536
REFUSED_PORTS = frozenset({25, 465, 587})
"""Mail ports: agents must not send mail unnoticed."""
_STATUS = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway", 503: "Service Unavailable"}

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect: TypeAlias = Callable[[str, int], Awaitable[Streams]]


@dataclass(frozen=True, slots=True)
class ProxyTarget:
    """The host and port that a connection asks for. ``head`` is the request head to send there first. For CONNECT it is
    empty; the client then gets a confirmation."""

    host: str
    port: int
    head: bytes = b""


class ProxyPolicy:
    """Decides where a sandbox may connect: to every address that the guard allows, except this machine."""

    def __init__(self, guard: Guard, egress: EgressPolicy) -> None:
        self._guard = guard
        self._egress = egress

    async def admit(self, host: str, port: int) -> FetchTarget:
        """Check a target and return it with its addresses. Raises Forbidden if it is not allowed, and InvalidRequest,
        FetchFailed."""
        if port in REFUSED_PORTS:
            raise Forbidden(f"Port {port} is for mail, which a sandbox cannot send.")
        self._egress.check(f"[{host}]" if ":" in host else host, "a connection of the sandbox")
        place = await self._guard.admit(host, port)
        if any(_this_machine(address) for address in place.addresses):
            raise Forbidden(f"{place.host} is this machine, which a sandbox cannot reach.")
        return place


class Proxy:
    """Serves one jail until ``aclose``. ``connect`` opens a connection to a checked address."""

    def __init__(self, reach: ProxyPolicy, connect: Connect = asyncio.open_connection) -> None:
        self._reach = reach
        self._connect = connect
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(self, listener: socket.socket) -> None:
        """Start serving ``listener`` and take ownership of it."""
        listener.setblocking(False)
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=MAX_HEAD)

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
        connections = dict(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        for writer in connections.values():
            writer.transport.abort()  # a task that is cancelled before its first step closes nothing
        await asyncio.sleep(0)  # aborted connections are notified in the next iteration of the loop

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Start a task for a new connection. The task is registered at once, so that ``aclose`` also ends a task that
        has not begun to run."""
        if self._server is None or not self._server.is_serving():
            writer.transport.abort()  # the connection was accepted just before ``aclose``
            return
        task = asyncio.create_task(self._serve_connection(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve_one(reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            return  # the client went away or sent an invalid request
        except asyncio.CancelledError:
            return  # ``aclose`` cancelled this task and waits for it
        finally:
            await _shut(writer)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
        if len(self._connections) > MAX_CONNECTIONS:
            return _answer(writer, 503, f"more than {MAX_CONNECTIONS} connections at once")
        try:
            target = target_of(head)
            place = await self._reach.admit(target.host, target.port)
        except InvalidRequest as error:
            return _answer(writer, 400, error.message)
        except AgentKernelError as error:
            return _answer(writer, 403 if isinstance(error, Forbidden) else 502, error.message)
        try:
            streams = await self._open(place)
        except OSError as error:
            return _answer(writer, 502, f"{place.host} cannot be reached: {error.strerror or error}")
        try:
            if target.head:
                streams[1].write(target.head)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _relay((reader, writer), streams)
        finally:
            await _shut(streams[1])

    async def _open(self, place: FetchTarget) -> Streams:
        """Connect to the first address that answers. Raises OSError if no address answers."""
        problem: OSError = OSError("it has no address")
        for address in place.addresses:
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await self._connect(address, place.port)
            except TimeoutError:
                problem = OSError(f"no answer in {CONNECT_S:g} s")
            except OSError as error:
                problem = error
        raise problem


def target_of(head: bytes) -> ProxyTarget:
    """Return the target of a proxy request. ``head`` is the request up to and including the empty line after its
    headers. Raises InvalidRequest for a request that is not meant for a proxy or that names no valid host and port."""
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    words = lines[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or b"\0" in head:
        raise InvalidRequest("This is a proxy. Send CONNECT host:port, or a request with an absolute http:// URL.")
    method, where, version = (word.decode("latin-1") for word in words)
    if method == "CONNECT":
        return ProxyTarget(*_authority(where, None))
    if not where.lower().startswith("http://"):
        raise InvalidRequest("This is a proxy. Send CONNECT host:port, or a request with an absolute http:// URL.")
    try:
        split = urlsplit(where)
    except ValueError as error:
        raise InvalidRequest(f"{where[:200]!r} is not a URL: {error}.") from None
    host, port = _authority(split.netloc.rpartition("@")[2], 80)
    path = where[len("http://") + len(split.netloc) :] or "/"
    headers = [line for line in lines[1:] if not line.lower().startswith((b"proxy-", b"connection:", b"keep-alive:"))]
    headers = [line for line in headers if not line.lower().startswith(b"host:")]
    host_text = f"[{host}]" if ":" in host else host
    host_header = host_text if port == 80 else f"{host_text}:{port}"
    path = path if path.startswith("/") else f"/{path}"
    # Each connection serves one request, because the next request may be for another host.
    first = [
        f"{method} {path} {version}".encode("latin-1"),
        f"Host: {host_header}".encode("latin-1"),
        b"Connection: close",
    ]
    return ProxyTarget(host, port, b"\r\n".join([*first, *headers]) + b"\r\n\r\n")


def _authority(text: str, port: int | None) -> tuple[str, int]:
    host, colon, number = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, number = text, ""
    if number and not (number.isascii() and number.isdigit() and len(number) < 6):
        raise InvalidRequest(f"{number[:20]!r} is not a port number.")
    if not host or (not number and port is None):
        raise InvalidRequest(f"{text[:100]!r} does not have the form host:port.")
    return host.strip("[]"), int(number) if number else port or 0


def _answer(writer: asyncio.StreamWriter, status: int, reason: str) -> None:
    body = f"agent-kernel: {reason}\n".encode()
    head = f"HTTP/1.1 {status} {_STATUS[status]}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
    writer.write(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


async def _shut(writer: asyncio.StreamWriter) -> None:
    """Close the connection when the written data are sent, or after CLOSE_S seconds."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_S):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()
    except asyncio.CancelledError:
        writer.transport.abort()
        raise


async def _relay(client: Streams, server: Streams) -> None:
    """Copy data in both directions until the server has sent everything, a side fails, or no data moves for IDLE_S
    seconds. ``client`` is the client's side, ``server`` the server's."""
    moved = [asyncio.get_running_loop().time()]
    tasks = [
        asyncio.create_task(_pump(client[0], server[1], moved)),
        asyncio.create_task(_pump(server[0], client[1], moved)),
    ]
    try:
        while pending := [task for task in tasks if not task.done()]:
            idle = asyncio.get_running_loop().time() - moved[0]
            if idle > IDLE_S:
                return
            await asyncio.wait(pending, timeout=IDLE_S - idle + 0.1)
            # The connection ends when one side fails or the server has sent everything.
            if tasks[1].done():
                return
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, moved: list[float]) -> None:
    while data := await reader.read(CHUNK):
        moved[0] = asyncio.get_running_loop().time()
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


def _this_machine(text: str) -> bool:
    address = ipaddress.ip_address(text)
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified or mapped.is_link_local or is_own_address(address))

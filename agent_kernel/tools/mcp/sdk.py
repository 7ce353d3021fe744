"""Connects to a configured MCP server, and returns the client of the connection. This is the only module that imports
the MCP SDK.

For servers that use standard input and output, agent-kernel has a transport of its own. The SDK's transport reads lines
without a limit (in quadratic time) and starts processes that can outlive this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.thread_offload import run_in_own_thread
from agent_kernel.tools.mcp.config import McpServer

if TYPE_CHECKING:
    import httpx2
    from mcp import Client

KEEPER = Path(__file__).with_name("server_supervisor.py")
MAX_MESSAGE = 16 << 20
"""Maximum size of one message from a server in bytes."""
MAX_FAULT = 4_000
"""Maximum characters of a server's last standard error output that are kept for the error message."""
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "SYSTEMROOT", "PATHEXT", "USERPROFILE", "TEMP")
"""Environment variables that a server inherits; all others come from its configuration."""
ASK_TO_END_S = 1.0
END_S = 4.0
HTTP_S = 30.0
CLOSED, UNREADABLE = -32000, -32603
ENDPOINT_S = 3.0
NO_SESSION = 404
EVENTS = "text/event-stream"
_ID = re.compile(rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,100}")')
Changed: TypeAlias = Callable[[str], Awaitable[None]]
Factory: TypeAlias = "Callable[..., httpx2.AsyncClient]"
ClientOf: TypeAlias = "Callable[[Any], Client]"


@dataclass(slots=True)
class ConnectionTrace:
    """Information about why a connection ended. ``stderr`` is the last output of the MCP server on standard error, and
    ``fault`` the HTTP error. ``forgotten`` is true if the MCP server no longer knows the session, and has therefore not
    run the request."""

    stderr: str = ""
    fault: str = ""
    forgotten: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)


async def load() -> None:
    """Import the SDK in a thread, which takes a second. Raises InvalidRequest if it is not installed."""
    names = ("mcp", "mcp.client.sse", "mcp.client.streamable_http")
    try:
        await run_in_own_thread(lambda: [importlib.import_module(name) for name in names], "import of mcp")
        # The library would log every URL, and a URL may contain a key.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
    except ImportError as error:
        raise InvalidRequest(
            "MCP servers need the MCP SDK.", hint="Install it: pip install 'agent-kernel[mcp]'"
        ) from error


@asynccontextmanager
async def connect(server: McpServer, trace: ConnectionTrace, changed: Changed, version: str) -> AsyncIterator[Client]:
    """Yield a client after the handshake. ``changed`` is called with the method of each notification. ``load`` must be
    called first. Raises what the SDK raises."""
    async with AsyncExitStack() as stack:
        if server.kind == "process":
            yield await stack.enter_async_context(_client_of(changed, version)(_stdio(server, trace)))
            return
        factory = _factory(trace)
        http = await stack.enter_async_context(factory(headers=dict(server.headers)))
        yield await _connect_http(server, http, stack, factory, _client_of(changed, version))


async def _connect_http(
    server: McpServer, http: httpx2.AsyncClient, stack: AsyncExitStack, factory: Factory, client_of: ClientOf
) -> Client:
    """Connect by streamable HTTP. Connect by SSE if the kind of the server is ``sse``, or if streamable HTTP fails and
    the server has an SSE endpoint."""
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    if server.kind == "http":
        try:
            transport = streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_MESSAGE)
            return await stack.enter_async_context(client_of(transport))
        except Exception:  # an SSE server refuses the handshake in many ways; any other error is raised again
            if not await _has_endpoint(server.url, http):
                raise
    old = sse_client(server.url, headers=dict(server.headers), httpx_client_factory=factory)
    return await stack.enter_async_context(client_of(old))


async def _has_endpoint(url: str, http: httpx2.AsyncClient) -> bool:
    """Return whether a GET opens a stream whose first event is the endpoint of the SSE transport."""
    import httpx2

    with contextlib.suppress(httpx2.HTTPError, TimeoutError):
        async with asyncio.timeout(ENDPOINT_S), http.stream("GET", url, headers={"accept": EVENTS}) as reply:
            if reply.status_code == 200 and reply.headers.get("content-type", "").startswith(EVENTS):
                async for line in reply.aiter_lines():
                    return line.replace(" ", "") == "event:endpoint"
    return False


def _client_of(changed: Changed, version: str) -> ClientOf:
    from mcp import Client
    from mcp_types import Implementation

    async def on_message(message: Any) -> None:
        if not isinstance(message, Exception):
            await changed(str(getattr(message, "method", "")))

    info = Implementation(name="agent-kernel", version=version)
    return lambda transport: Client(transport, client_info=info, message_handler=on_message, cache=None)


# ------------------------------------------------------------------------------------------------ HTTP transport


def _factory(trace: ConnectionTrace) -> Factory:
    """Return a function that creates HTTP clients: without the proxies and keys of the environment, and with a limit of
    MAX_MESSAGE bytes for responses."""
    import httpx2

    class Bounded(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            reply = await super().handle_async_request(request)
            trace.forgotten |= reply.status_code == NO_SESSION and "mcp-session-id" in request.headers
            streams = reply.headers.get("content-type", "").startswith(EVENTS)
            if not streams:  # event streams have a limit for each event
                reply.stream = Counted(reply.stream)
            return reply

    class Counted(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in self.stream:
                size += len(piece)
                if size > MAX_MESSAGE:
                    trace.fault = f"the answer has more than {MAX_MESSAGE >> 20} MiB"
                    raise httpx2.ReadError(trace.fault)
                yield piece

        async def aclose(self) -> None:
            await self.stream.aclose()

    def make(headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
        # During a call, a server may send nothing for a long time, so reads have no timeout. The call's own time limit
        # ends it.
        patience = httpx2.Timeout(HTTP_S, read=None)
        plain = {"accept-encoding": "identity", **(headers or {})}
        return httpx2.AsyncClient(transport=Bounded(retries=0), headers=plain, timeout=patience, trust_env=False)

    return make


# ------------------------------------------------------------------------------------------------ stdio transport


@asynccontextmanager
async def _stdio(server: McpServer, trace: ConnectionTrace) -> AsyncIterator[tuple[Any, Any]]:
    """Start the process and connect. Raises OSError if it cannot be started."""
    import anyio

    process = await _start(server)
    inbox, read = anyio.create_memory_object_stream[Any](0)
    write, outbox = anyio.create_memory_object_stream[Any](0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, process, inbox, trace)
        tasks.start_soon(_send, process, outbox)
        tasks.start_soon(_collect_stderr, process, trace)
        try:
            yield read, write
        finally:
            with anyio.CancelScope(shield=True):
                for stream in (read, write):
                    await stream.aclose()
                await _end(process)
            tasks.cancel_scope.cancel()


async def _start(server: McpServer) -> asyncio.subprocess.Process:
    env = {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(server.env)
    command = [server.command, *server.args]
    if sys.platform != "win32":
        command = [sys.executable, "-I", "-S", str(KEEPER), str(os.getpid()), *command]
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        cwd=server.cwd or None,
        limit=MAX_MESSAGE,
        start_new_session=True,  # Ctrl-C in the terminal of this server must not reach the MCP server
    )


async def _receive(process: asyncio.subprocess.Process, inbox: Any, trace: ConnectionTrace) -> None:
    import anyio

    assert process.stdout is not None
    try:
        async with inbox:
            while message := await _next(process.stdout):
                await inbox.send(message)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # the client has closed its end of the stream
    finally:
        trace.ended.set()


async def _next(stdout: asyncio.StreamReader) -> Any:
    """Return the next message, an exception for an invalid line, or None at the end."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        line = await stdout.readuntil(b"\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        return await _too_long(stdout)
    for text in (line, _mend(line)):
        with contextlib.suppress(ValueError):
            return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    return _error_for(line, "the answer is not a valid message") or ValueError(
        "the server wrote a line that is not a message"
    )


def _mend(line: bytes) -> bytes:
    """Return the line with invalid UTF-8 and lone surrogates replaced; empty if the line is not JSON."""
    try:
        body = json.loads(line.decode("utf-8", "replace"))
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return b""


def _error_for(line: bytes, why: str) -> Any:
    """Return an error message that answers the call to which ``line`` is the invalid answer. Return None if the
    beginning of the line does not contain the call's id."""
    from mcp.shared.message import SessionMessage
    from mcp_types import ErrorData, JSONRPCError

    match = _ID.search(line[:1000].partition(b'"result"')[0])
    if match is None:
        return None
    id = match.group(1).decode("utf-8", "replace")
    error = ErrorData(code=UNREADABLE, message=why)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id.strip('"') if '"' in id else int(id), error=error))


async def _too_long(stdout: asyncio.StreamReader) -> Any:
    """Skip the rest of a line that is too long, and return an error message for the call that the line answers. If that
    call is not known, end the connection."""
    beginning, is_found = b"", False
    while not is_found:
        try:
            piece = await stdout.readuntil(b"\n")
            is_found = True
        except asyncio.LimitOverrunError as error:
            piece = await stdout.readexactly(error.consumed)
        except asyncio.IncompleteReadError:
            return None
        beginning = beginning or piece[:1000]
    return _error_for(beginning, f"the answer has more than {MAX_MESSAGE >> 20} MiB")


async def _send(process: asyncio.subprocess.Process, outbox: Any) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # the process has ended; the reader notices it
        async with outbox:
            async for message in outbox:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()


async def _collect_stderr(process: asyncio.subprocess.Process, trace: ConnectionTrace) -> None:
    assert process.stderr is not None
    while piece := await process.stderr.read(65536):
        trace.stderr = (trace.stderr + piece.decode("utf-8", "replace"))[-MAX_FAULT:]


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process in the order that the specification requires: close its input, terminate it, then kill it."""
    assert process.stdin is not None
    process.stdin.close()
    for patience, how in ((ASK_TO_END_S, process.terminate), (END_S, process.kill), (END_S, None)):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_await_exit(process), patience)
            break
        if how is not None:
            with contextlib.suppress(ProcessLookupError):
                how()
    transport = getattr(process, "_transport", None)
    if transport is not None:  # a descendant that escaped may hold a pipe
        transport.close()


async def _await_exit(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of the process only. ``process.wait`` would also wait until its pipes are closed."""
    while process.returncode is None:  # noqa: ASYNC110  asyncio has no other way to wait for this
        await asyncio.sleep(0.01)

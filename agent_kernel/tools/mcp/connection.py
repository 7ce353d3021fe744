"""Keeps the connection to one MCP server. The connection is established on first use, kept open, and established again
after it has ended.

A task of its own enters and exits the SDK's client, because only the task that entered the client can exit it, while
calls come from the tasks of turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import AgentKernelError
from agent_kernel.tools.mcp import sdk
from agent_kernel.tools.mcp.config import McpServer, ResolvedServer

log = logging.getLogger(__name__)
CONNECT_S = 60.0
"""Maximum seconds for the handshake. A server that takes longer is stopped."""
BACKOFF_S = (0.0, 1.0, 5.0, 30.0, 120.0, 600.0)
STEADY_S = 30.0
"""If a connection that lasted at least this many seconds ends, a new one is established at once."""
MAX_TOOLS = 256
MAX_RESOURCES = 1000
MAX_PAGES = 100
MAX_REASON = 500


class McpServerUnavailable(Exception):
    """Raised if the MCP server is not connected; the message is the reason.

    ``ran`` is true if a call was sent, so that it may have run. ``untried`` is true if a call was sent and the MCP
    server refused it without running it, because it no longer knew the session.
    """

    def __init__(self, reason: str, *, ran: bool = False, untried: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.ran = ran
        self.untried = untried


@dataclass(frozen=True, slots=True)
class ServerListing:
    """The tools and resources of a server as the SDK's objects; ``more`` means that the server has more than are
    listed."""

    tools: tuple[Any, ...] = ()
    resources: tuple[Any, ...] = ()
    more: bool = False


@dataclass(slots=True)
class ServerRun:
    """One connection to a server, from its start to its end.

    ``ready`` is set when the connection is established or has failed. Set ``leave`` to end it. ``stale`` is set when
    the server has announced a change, so that its tools must be listed again.
    """

    trace: sdk.ConnectionTrace = field(default_factory=sdk.ConnectionTrace)
    began: float = field(default_factory=time.monotonic)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    stale: asyncio.Event = field(default_factory=asyncio.Event)
    client: Any = None
    task: asyncio.Task[None] | None = None


class McpConnection:
    """Keeps one server connected.

    ``listed`` keeps its value after the server ends, so that the server's tools are still offered; a call of such a
    tool connects again. ``attempt`` counts connections. ``problem`` is the reason why the last connection failed or
    ended; empty while the server is connected.
    """

    def __init__(
        self,
        server: McpServer,
        egress: EgressPolicy,
        *,
        version: str = "",
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self.server = server
        self.listed: ServerListing | None = None
        self.attempt = 0
        self.problem = ""
        self._egress = egress
        self._version = version
        self._env = env
        self._life: ServerRun | None = None
        self._failures = 0
        self._not_before = 0.0
        self._closed = False
        self._filled: ResolvedServer | None = None

    @property
    def starting(self) -> bool:
        return self._life is not None and not self._life.ready.is_set()

    @property
    def age(self) -> float:
        """The number of seconds since the current connection was started; 0 if there is none."""
        return time.monotonic() - self._life.began if self._life is not None else 0.0

    @property
    def connected(self) -> bool:
        return self._life is not None and self._life.client is not None and not self._life.trace.ended.is_set()

    @property
    def may_try(self) -> bool:
        """Whether a new connection may be started now, that is, whether the pause after the last failure is over."""
        return not self._closed and time.monotonic() >= self._not_before

    def begin(self) -> None:
        """Connect in the background. Does nothing during the pause after the last failure."""
        if self._life is None and self.may_try:
            self.attempt += 1
            self._life = life = ServerRun(began=time.monotonic())
            life.task = asyncio.create_task(self._live(life), name=f"MCP server {self.server.name}")

    async def wait_until_connected(self, wait_s: float) -> bool:
        """Connect, wait at most ``wait_s`` seconds, and return whether the server is connected."""
        self.begin()
        life = self._life
        if life is None:
            return False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(life.ready.wait(), wait_s)
        return self.connected

    async def client(self) -> Any:
        """Return the SDK's client. Raises McpServerUnavailable if the server is not connected."""
        if not await self.wait_until_connected(CONNECT_S + 5):
            wait = self._not_before - time.monotonic()
            later = f" It is tried again in {wait:.0f} s at the earliest." if wait > 0 else ""
            raise McpServerUnavailable((self.problem or "It does not answer.") + later)
        assert self._life is not None
        return self._life.client

    async def call(self, name: str, arguments: dict[str, Any], progress: Any) -> Any:
        """Call a tool and return the SDK's result. Raises McpServerUnavailable, MCPError.

        If the caller is cancelled, the server is notified. No call runs twice.
        """
        return await self._ask(lambda client: client.call_tool(name, arguments, progress_callback=progress))

    async def read(self, uri: str) -> Any:
        """Read a resource and return the SDK's result. Raises McpServerUnavailable, MCPError."""
        return await self._ask(lambda client: client.read_resource(uri))

    async def _ask(self, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        """Send a request, and repeat it over a new connection only if the server refused to process it."""
        for again in (True, False):
            client = await self.client()
            life = self._life
            try:
                return await ask(client)
            except Exception as error:  # the SDK reports a lost connection with errors of many kinds
                why = await self._to_call_error(life, error)
                if why is error:
                    raise
                if not (again and isinstance(why, McpServerUnavailable) and why.untried):
                    raise why from error
        raise AssertionError("the repeated request neither returned nor raised")

    def redact(self, text: str) -> str:
        """Return the text with the secrets of the configuration redacted."""
        return self._filled.redact(text) if self._filled else text

    async def aclose(self) -> None:
        self._closed = True
        life = self._life
        if life is not None and life.task is not None:
            life.leave.set()
            if life.client is None:
                life.task.cancel("the server stops")
            await asyncio.wait([life.task])

    # ------------------------------------------------------------------------------------------------ one connection

    async def _live(self, life: ServerRun) -> None:
        """Establish one connection, serve it until it ends, and record why it ended."""
        reason = ""
        try:
            await self._connect(life)
        except asyncio.CancelledError:
            reason = "It was stopped."
            if not self._closed:
                raise
        except Exception as error:  # noqa: BLE001  the SDK may raise anything; it becomes ``problem``
            reason = self._describe(error, life)
        finally:
            self._life = None
            self._on_end(life, reason)
            life.ready.set()

    async def _connect(self, life: ServerRun) -> None:
        await sdk.load()
        self._filled = self.server.resolve(self._env)
        server = self._filled.server
        if server.kind == "websocket":
            raise McpServerUnavailable("The MCP SDK has no WebSocket transport. Set the type of this server to Http.")
        if server.kind != "process":
            self._egress.check(server.url, f"the MCP server {server.name}")

        async def on_notification(method: str) -> None:
            if method.endswith("list_changed"):
                life.stale.set()

        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(CONNECT_S):
                entered = sdk.connect(server, life.trace, on_notification, self._version)
                client = await stack.enter_async_context(entered)
                self.listed = await listing(client, bool(server.resources))
            life.client = client
            self.problem = ""
            life.ready.set()
            following = asyncio.create_task(_follow(client, life))
            try:
                await self._serve(life, client)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _serve(self, life: ServerRun, client: Any) -> None:
        """Serve calls until the connection ends or is closed; list the tools again when the server announces a
        change."""
        while not life.leave.is_set() and not life.trace.ended.is_set():
            waits = [asyncio.create_task(event.wait()) for event in (life.leave, life.trace.ended, life.stale)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            if life.stale.is_set() and not life.trace.ended.is_set():
                life.stale.clear()
                try:
                    async with asyncio.timeout(self.server.timeout_s):
                        self.listed = await listing(client, bool(self.server.resources))
                except Exception as error:  # noqa: BLE001  the previous listing stays valid
                    log.warning(
                        "MCP server %s could not be listed again: %s", self.server.name, self._describe(error, life)
                    )

    def _on_end(self, life: ServerRun, reason: str) -> None:
        """Set when the next connection may be started: at once if the connection that ended lasted at least STEADY_S
        seconds, else after a pause that grows with each failure."""
        if self._closed:
            return
        lived = life.client is not None
        if not lived:
            self.problem = reason or "It did not start."
        elif life.trace.ended.is_set():
            self.problem = f"It ended{_last_words(self.redact(life.trace.stderr))}."
        else:
            self.problem = "The connection was lost."
        if lived and time.monotonic() - life.began >= STEADY_S:
            self._failures = 0
        self._failures += 0 if lived else 1
        self._not_before = time.monotonic() + BACKOFF_S[min(self._failures, len(BACKOFF_S) - 1)]
        self._failures += 1 if lived else 0
        if self.problem:
            log.warning("MCP server %s: %s", self.server.name, self.problem)

    async def _to_call_error(self, life: ServerRun | None, error: Exception) -> Exception:
        """Return the error to raise for a failed call: McpServerUnavailable if the connection was lost or the server no
        longer knows the session, otherwise ``error`` itself."""
        code = getattr(error, "code", None)
        untried = life is not None and life.trace.forgotten
        lost = life is None or life.trace.ended.is_set() or code == sdk.CLOSED or _is_transport(error)
        if not (lost or untried):
            return error
        cause = "" if str(error) in ("", "Connection closed") else f" ({error})"
        if life is not None:
            cause = f" ({life.trace.fault})" if life.trace.fault else cause
            life.leave.set()
            if life.task is not None:
                await asyncio.wait([life.task], timeout=sdk.END_S)
            cause += _last_words(life.trace.stderr)
        reason = self.redact(f"The connection ended during the call{cause}.")[: 2 * MAX_REASON]
        return McpServerUnavailable(reason, ran=not untried, untried=untried)

    def _describe(self, error: BaseException, life: ServerRun) -> str:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, McpServerUnavailable):
            return error.reason
        if isinstance(error, TimeoutError):
            words = f"It did not answer within {CONNECT_S:.0f} s"
        elif isinstance(error, AgentKernelError):
            return self.redact(str(error))[:MAX_REASON]
        elif getattr(error, "code", None) == sdk.CLOSED:
            words = "It ended before it answered"
        elif isinstance(error, OSError):
            words = f"It cannot be started ({error.strerror or error})"
        else:
            words = f"It did not connect ({type(error).__name__}: {error})"
        return self.redact(words + _last_words(life.trace.stderr))[: 2 * MAX_REASON] + "."


async def listing(client: Any, resources: bool) -> ServerListing:
    """List all pages of tools, and of resources if wanted; at most MAX_TOOLS and MAX_RESOURCES."""
    capabilities = client.server_capabilities
    tools: list[Any] = []
    listed_resources: list[Any] = []
    if capabilities is None or capabilities.tools is not None:
        tools = await _pages(client.list_tools, "tools", MAX_TOOLS)
    if resources and capabilities is not None and capabilities.resources is not None:
        listed_resources = await _pages(client.list_resources, "resources", MAX_RESOURCES)
    more = len(tools) > MAX_TOOLS
    return ServerListing(tuple(tools[:MAX_TOOLS]), tuple(listed_resources[:MAX_RESOURCES]), more)


async def _pages(page: Callable[..., Any], name: str, limit: int) -> list[Any]:
    entries: list[Any] = []
    cursor = None
    for _ in range(MAX_PAGES):
        reply = await page(cursor=cursor)
        entries += getattr(reply, name)
        cursor = reply.next_cursor
        if cursor is None or len(entries) > limit:
            break
    return entries


async def _follow(client: Any, life: ServerRun) -> None:
    """Subscribe to the announcements of changes. Servers of the newest protocol version do not send them otherwise."""
    try:
        async with client.listen(tools_list_changed=True, resources_list_changed=True) as changes:
            async for _ in changes:
                life.stale.set()
    # Most servers do not support subscriptions, and refuse them with errors of many kinds. Changes of their tools are
    # then not noticed.
    except Exception:
        log.debug("an MCP server does not announce changes", exc_info=True)


def _is_transport(error: BaseException) -> bool:
    """Return whether the error means that the connection is lost: it comes from the HTTP library or a closed stream."""
    return type(error).__module__.partition(".")[0] in {"httpx2", "httpcore2", "anyio"} or isinstance(error, OSError)


def _last_words(stderr: str) -> str:
    """Return the last three lines that the server wrote to standard error, as text that completes an error message."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return f"; its last output: {' '.join(lines[-3:])[-MAX_REASON:]}" if lines else ""

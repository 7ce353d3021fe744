"""Runs the MCP endpoint of this server: the server and the session manager of the MCP SDK, behind a tornado handler.

The SDK's transport (both protocol generations, sessions, resumption, errors) is used unchanged. It is an ASGI
application, which ``api/http/asgi.py`` runs. The SDK is imported when the first client connects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from agent_kernel.core.errors import AgentKernelError, NotFound, client_text
from agent_kernel.core.thread_offload import run_in_own_thread
from agent_kernel.core.version import __version__
from jupyter_ext.api.http.asgi import AsgiExchange
from jupyter_ext.api.mcp.event_replay import SessionReplays
from jupyter_ext.api.mcp.tools import TOOLS, McpTools
from jupyter_ext.api.mcp.turn import ASK, Client, InvalidArguments, McpQuestion
from jupyter_ext.auth.callers import Caller, subject
from jupyter_ext.services import Services

MAX_SESSIONS = 1_000
"""Maximum number of open MCP sessions, of 50 kB each. Many clients end without a DELETE; their sessions stay open until
they are idle."""
IDLE_S = 30 * 60.0
MAX_BODY = 4 << 20
LAST_EVENT_ID, SESSION_ID = "last-event-id", "mcp-session-id"
CALLER = "agent_kernel.caller"
INSTRUCTIONS = (
    "The agent of a Jupyter server: 'agent' asks it one turn, in a conversation of its own or that of a notebook. "
    "Calls that need a person's yes are asked for here if this client can ask (elicitation), else in the panel."
)


class McpEndpoint:
    """The MCP endpoint of one server, which is started by its first request.

    ``handle`` serves one HTTP request of an authorized caller; ``aclose`` ends all sessions.
    """

    def __init__(self, tools: McpTools) -> None:
        self._tools = tools
        self._starting = asyncio.Lock()
        self._manager: Any = None
        self._task: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._replays = SessionReplays()
        self._resumed: set[AsgiExchange] = set()

    async def handle(self, exchange: AsgiExchange, caller: Caller) -> None:
        """Serve one HTTP request. Raises NotFound if the SDK is not installed."""
        async with self._starting:
            if self._task is None:
                await self._start()
        extra = {"user": _owner(caller), "state": {CALLER: caller}}
        last_event_id = exchange.header(LAST_EVENT_ID)
        replay = self._replays.find(last_event_id)
        if replay is None:  # for an unknown event the SDK would send an empty stream again and again
            await exchange.run(self._manager.handle_request, frozenset({LAST_EVENT_ID}), **extra)
        elif not replay.can_resume(last_event_id):  # to clients of event streams, 204 means: do not connect again
            exchange.respond(HTTPStatus.NO_CONTENT)
        else:
            self._resumed.add(exchange)
            try:
                await exchange.run(self._manager.handle_request, **extra)
            finally:
                self._resumed.discard(exchange)
        if exchange.method == "DELETE" and exchange.status == HTTPStatus.OK:
            self._end_resumed(exchange.header(SESSION_ID))

    async def aclose(self) -> None:
        self._leave.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._end_resumed()

    def _end_resumed(self, session: str = "") -> None:
        """End the resumed streams of an MCP session, or of all sessions. The SDK ends the other streams itself."""
        for exchange in self._resumed:
            if not session or exchange.header(SESSION_ID) == session:
                exchange.leave()

    async def _start(self) -> None:
        """Start one task that enters and leaves the session manager, because the manager requires the same task for
        both."""
        try:
            self._manager = await run_in_own_thread(lambda: _manager(self._tools, self._replays), "import of mcp")
        except ImportError as error:
            raise NotFound(
                "This server has no MCP endpoint: the MCP SDK is not installed.",
                hint="Install it beside the server: pip install 'agent-kernel[mcp]'",
            ) from error
        running = asyncio.Event()
        self._task = asyncio.create_task(self._run(running), name="MCP endpoint")
        await asyncio.wait([self._task, started := asyncio.create_task(running.wait())], return_when="FIRST_COMPLETED")
        started.cancel()

    async def _run(self, running: asyncio.Event) -> None:
        async with self._manager.run():
            running.set()
            await self._leave.wait()


def endpoint_of(services: Services) -> McpEndpoint:
    """Return the MCP endpoint of a server. It is created when it is requested first."""

    def make() -> McpEndpoint:
        tools = McpTools(
            runtime=services.runtime,
            access=services.access,
            turns=services.turns,
            control=services.turn_control,
            starter=services.turn_starter,
            notebooks=services.notebooks,
            attached_notebooks=services.attached_notebooks,
        )
        return McpEndpoint(tools)

    return services.on_demand.get(McpEndpoint, make)


def _manager(tools: McpTools, replays: SessionReplays) -> Any:
    """Return the session manager of the SDK. The first call imports the SDK, so call it in a thread. Raises
    ImportError."""
    from mcp.server.lowlevel.server import Server
    from mcp.server.streamable_http import EventMessage
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.shared.exceptions import MCPError
    from mcp_types import INVALID_PARAMS, CallToolResult, InputRequiredResult, ListToolsResult, TextContent, Tool

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        listed = [
            Tool(name=name, description=tool.description, input_schema=tool.schema) for name, tool in TOOLS.items()
        ]
        return ListToolsResult(tools=listed)

    async def call_tool(context: Any, params: Any) -> CallToolResult | InputRequiredResult:
        caller: Caller = context.request.scope["state"][CALLER]
        if params.name not in TOOLS:
            raise MCPError(INVALID_PARAMS, f"There is no tool {params.name[:100]!r}; there are {', '.join(TOOLS)}.")
        try:
            outcome = await tools.call(params.name, params.arguments or {}, caller, SdkClient(context, params))
        except InvalidArguments as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None
        except AgentKernelError as error:
            content = TextContent(type="text", text=client_text(error))
            return CallToolResult(content=[content], structured_content={"error": error.to_json()}, is_error=True)
        if isinstance(outcome, McpQuestion):
            return InputRequiredResult(input_requests={outcome.id: _elicitation(outcome)}, request_state=outcome.state)
        answer = TextContent(type="text", text=outcome.text)
        return CallToolResult(content=[answer], structured_content=dict(outcome.facts), is_error=outcome.failed)

    class Manager(StreamableHTTPSessionManager):
        event_store: Any = property(lambda _: replays.new(EventMessage), lambda _, value: None)
        """Each access returns a new event store. The SDK reads this attribute once for each MCP session, so that each
        session gets a store of its own."""

    server: Any = Server(
        "agent-kernel", version=__version__, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )
    return Manager(server, max_sessions=MAX_SESSIONS, session_idle_timeout=IDLE_S, max_request_body_size=MAX_BODY)


def _owner(caller: Caller) -> Any:
    """Return the user in the SDK's form; an MCP session belongs to the user who started it."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="-", client_id=f"{subject(caller)} of {caller.namespace}", scopes=[]))


def _elicitation(question: McpQuestion) -> Any:
    from mcp_types import ElicitRequest, ElicitRequestFormParams

    return ElicitRequest(params=ElicitRequestFormParams(message=question.text, requested_schema=dict(ASK)))


class SdkClient(Client):
    """The MCP client of one call, to which the SDK sends progress and questions."""

    def __init__(self, context: Any, params: Any) -> None:
        self._context = context
        capabilities = context.session.client_capabilities
        self.elicits = capabilities is not None and capabilities.elicitation is not None
        self.answers_later = not context.session.can_send_request
        self.state = str(params.request_state or "")
        self.answers = {
            id: (str(answer.action), dict(answer.content or {}))
            for id, answer in (params.input_responses or {}).items()
            if hasattr(answer, "action")
        }

    async def progress(self, done: float, text: str) -> None:
        await self._context.session.report_progress(done, None, text)

    async def elicit(self, question: McpQuestion) -> tuple[str, Mapping[str, Any]]:
        answer = await self._context.session.elicit_form(
            message=question.text, requested_schema=dict(ASK), related_request_id=self._context.request_id
        )
        return str(answer.action), dict(answer.content or {})

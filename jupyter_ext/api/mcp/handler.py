"""The route ``agent/v1/mcp``: the MCP endpoint for programs with a person's credential, not for code in a notebook."""

from __future__ import annotations

from agent_kernel.core.errors import InvalidRequest
from jupyter_ext.api.http.asgi import AsgiExchange
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.mcp.endpoint import endpoint_of
from jupyter_ext.api.schemas.errors import Error, RpcError
from jupyter_ext.api.schemas.operation import Raw, operation

MESSAGE = Raw(("application/json",), {"type": "object"})
"""JSON-RPC 2.0, as specified at modelcontextprotocol.io."""
MESSAGES = Raw(("application/json", "text/event-stream"), {})


SPOKEN = "The message must belong to an MCP session that the client has started."


class McpHandler(AgentHandler):
    """Streamable HTTP: POST sends messages, GET opens a stream of server messages, DELETE ends a session."""

    error_shape = Error | RpcError
    _exchange: AsgiExchange | None = None

    @guard("execute", kernels=False)
    @operation(MESSAGES, body=MESSAGE, also={202: None}, errors=(404, 406), conditions=SPOKEN)
    async def post(self) -> None:
        """Send a message to the MCP endpoint."""
        # The SDK would answer with an error in a format that is neither that of this API nor JSON-RPC.
        if not self.request.headers.get("Content-Type", "").lower().startswith("application/json"):
            raise InvalidRequest(
                "A message to the MCP endpoint must be JSON.", hint="Send it with Content-Type: application/json."
            )
        await self._serve()

    @guard("execute", kernels=False)
    @operation(MESSAGES, also={204: None}, errors=(404, 406, 409), conditions=SPOKEN)
    async def get(self) -> None:
        """Send the client the messages of the MCP server as they are produced.

        A client that lost its connection sends ``Last-Event-ID`` and receives the events that follow this event in its
        stream. The status is 204 if none follow."""
        await self._serve()

    @guard("execute", kernels=False)
    @operation(errors=(404,), conditions=SPOKEN)
    async def delete(self) -> None:
        """End an MCP session."""
        await self._serve()

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self._exchange is not None:
            self._exchange.leave()

    async def _serve(self) -> None:
        self._exchange = AsgiExchange(self)
        try:
            await endpoint_of(self.services).handle(self._exchange, self.caller)
        finally:
            self._exchange.leave()
        if not self._finished:
            content_type = self._headers.get("Content-Type", "application/json")
            self.finish(set_content_type=content_type)

"""Routes of the server's metrics in the format of Prometheus, and of the limits of the caller and how much of them is
used."""

from __future__ import annotations

from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.schemas import server as shapes
from jupyter_ext.api.schemas.operation import Raw, operation

TEXT = Raw(("text/plain", "application/openmetrics-text"))


class LimitsHandler(AgentHandler):
    @guard("read")
    @operation(shapes.Used)
    async def get(self) -> None:
        """Get the limits of the caller, and how much of them is used."""
        token = self.caller.token
        self.reply(await self.services.state.user_limits.state(self.caller.namespace, token.id if token else ""))


class MetricsHandler(AgentHandler):
    """The handler of the server's metrics. It refuses the credential of a kernel, because the metrics cover all
    users."""

    @guard("read", kernels=False)
    @operation(TEXT)
    async def get(self) -> None:
        """Get the metrics of this server, for Prometheus.

        They are in the text format of Prometheus, or in the OpenMetrics format if the client accepts it.
        """
        text, content_type = await self.services.metrics.exposition(self.request.headers.get("Accept", ""))
        self.finish(text, set_content_type=content_type)

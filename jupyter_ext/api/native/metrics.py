"""The metrics of this server for Prometheus. They cover all users together, so a kernel's credential does not open
them."""

from __future__ import annotations

from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.schemas.operation import Raw, operation

TEXT = Raw(("text/plain", "application/openmetrics-text"))


class MetricsHandler(AgentHandler):
    @guard("read", kernels=False)
    @operation(TEXT)
    async def get(self) -> None:
        """Get the metrics of this server, for Prometheus.

        They are in the text format of Prometheus, or in the OpenMetrics format if the client accepts it.
        """
        text, content_type = await self.services.metrics.exposition(self.request.headers.get("Accept", ""))
        self.finish(text, set_content_type=content_type)

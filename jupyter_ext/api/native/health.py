"""Routes that report the health of this server. Their module imports little, because a client that has started a server
waits for their first answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jupyter_server.auth.decorator import allow_unauthenticated

from agent_kernel.core.errors import StoreError
from agent_kernel.core.version import __version__
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.native import available_models
from jupyter_ext.api.schemas.operation import operation


class ProbeHandler(AgentHandler):
    """A liveness probe without authentication; it reports nothing else."""

    @allow_unauthenticated
    async def get(self) -> None:
        stopping = self.services.turns.is_refusing
        self.reply({"status": "stopping" if stopping else "ok"}, 503 if stopping else 200)

    @allow_unauthenticated
    async def head(self, *args: str) -> None:
        await self.get()


class HealthHandler(AgentHandler):
    @guard("read")
    @operation("jupyter_ext.api.schemas.server:Health")
    async def get(self) -> None:
        """Check the health of this server."""
        runtime = self.services.runtime
        store = "ok"
        try:
            await runtime.store.list(self.caller.namespace, 1)
        except StoreError as error:
            store = error.to_json()["message"]
        sandbox = {name: _without_path(layer) for name, layer in (await runtime.sandbox.report()).items()}
        servers = await available_models.mcp_servers(self.services.runtime)
        well = store == "ok" and all(row["state"] != "failed" for row in servers)
        self.reply(
            {
                "status": "ok" if well else "degraded",
                "version": __version__,
                "engine": available_models.engine_to_json(runtime.engine.info()),
                "sandbox": sandbox,
                "store": {"kind": runtime.settings.store, "state": store},
                "mcp_servers": servers,
            }
        )


def _without_path(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report of a sandbox layer, in which the name of a program replaces the program's path."""
    return {**layer, "detail": re.sub(r"^/\S*/(?=[^/\s]+(?: |$))", "", str(layer["detail"]))}

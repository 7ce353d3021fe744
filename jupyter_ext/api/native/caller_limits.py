"""The limits of the caller, and how much of them is used."""

from __future__ import annotations

from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.schemas import caller_limits as shapes
from jupyter_ext.api.schemas.operation import operation


class LimitsHandler(AgentHandler):
    @guard("read")
    @operation(shapes.Used)
    async def get(self) -> None:
        """Get the limits of the caller, and how much of them is used."""
        token = self.caller.token
        self.reply(await self.services.user_limits.state(self.caller.namespace, token.id if token else ""))

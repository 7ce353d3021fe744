"""Paths below ``agent/v1`` that nothing is at: answered in our shape, whatever the verb, instead of Jupyter's page."""

from __future__ import annotations

from agent_kernel.errors import NotFound
from jupyter_ext.handlers.base import AgentHandler, guarded


class UnknownHandler(AgentHandler):
    @guarded("read")
    async def get(self, path: str = "") -> None:
        raise NotFound("There is nothing at this address.", hint="docs/ names the routes of this server.")

    post = put = patch = delete = get

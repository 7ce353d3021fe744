"""Answer requests for unknown paths below ``agent/v1`` with an error of this API instead of Jupyter's page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.errors import NotFound
from jupyter_ext.api.dialects.handler import SharedHandler
from jupyter_ext.api.http.handler import AgentHandler, guard

NATIVE = re.compile(r".*/v1/(?:sessions|turns|agent|binding|binds|search|trust|tools|beside|engine|usage)(?:/.*)?")
MESSAGES = re.compile(r".*/v1/messages(?:/.*)?")


class UnknownHandler(SharedHandler):
    @property
    def anthropic(self) -> bool:
        """Whether errors have Anthropic's format: the client sent Anthropic's header, or the unknown path is below
        ``messages``."""
        return super().anthropic or bool(MESSAGES.fullmatch(self.request.path))

    def error_body(self, status: int, error: Mapping[str, Any]) -> Mapping[str, Any]:
        """Use the native format for unknown paths of native routes."""
        if NATIVE.fullmatch(self.request.path):
            return AgentHandler.error_body(self, status, error)
        return super().error_body(status, error)

    @guard("read")
    async def get(self, path: str = "") -> None:
        raise NotFound(f"There is no route at this URL. GET {self.base_url}agent/v1/openapi.json lists all routes.")

    post = put = patch = delete = get

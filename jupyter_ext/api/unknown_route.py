"""Answers requests for unknown paths below ``agent/v1`` with an error of this API instead of Jupyter's page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.errors import NotFound
from jupyter_ext.api.dialects.handler import SharedHandler
from jupyter_ext.api.http.handler import AgentHandler, guard

NATIVE = re.compile(r".*/v1/(?:sessions|turns|agent|binding|binds|search|trust|tools|beside|engine|usage)(?:/.*)?")
ALTERNATIVES = (
    ("/completions", "use chat/completions"),
    ("/chat/completions/", "chat completions are not stored; use responses, which are"),
    ("/embeddings", "the models of this server make no embeddings"),
    ("/responses/compact", "the server itself shortens long conversations; continue with previous_response_id"),
)
"""Texts that say what a program can do instead of using a route of OpenAI's API that this server does not have, by the
beginning of the route's path."""
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
        path = path or self.request.path
        instead = next((f": {text}" for start, text in ALTERNATIVES if path.startswith(start)), "")
        lists = f"GET {self.base_url}agent/v1/openapi.json lists all routes."
        raise NotFound(f"There is no route at this URL{instead}. {lists}")

    post = put = patch = delete = get

"""Handlers of ``openapi.json`` and of the same document as an HTML page."""

from __future__ import annotations

import asyncio
import functools
import json
from typing import Any

from agent_kernel.core.version import __version__
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.http.lazy_handlers import load_class
from jupyter_ext.api.openapi.document import document
from jupyter_ext.api.openapi.html_page import STYLE_HASH, page
from jupyter_ext.api.schemas.operation import Raw, operation

PREFIX = "/agent/v1"


class OpenApiHandler(AgentHandler):
    @guard("read")
    @operation(dict[str, Any])
    async def get(self) -> None:
        """Get the OpenAPI document."""
        self.finish(await asyncio.to_thread(_document_bytes, self.base_url))

    @staticmethod
    @functools.cache
    def document(base_url: str) -> dict[str, Any]:
        """Return the document, which is built at the first call. Blocking: the first call imports all dialects."""
        return document(
            load_class("jupyter_ext.api.routes:routes")(), PREFIX, __version__, f"{base_url.rstrip('/')}{PREFIX}"
        )


class DocsHandler(AgentHandler):
    """The document as an HTML page without scripts."""

    @property
    def content_security_policy(self) -> str:
        return f"{super().content_security_policy}; style-src '{STYLE_HASH}'"

    @guard("read")
    @operation(Raw(("text/html",)))
    async def get(self) -> None:
        """Get the OpenAPI document as an HTML page."""
        self.finish(await asyncio.to_thread(_document_page, self.base_url), set_content_type="text/html; charset=utf-8")


@functools.cache
def _document_bytes(base_url: str) -> bytes:
    return json.dumps(OpenApiHandler.document(base_url), ensure_ascii=False).encode()


@functools.cache
def _document_page(base_url: str) -> str:
    return page(OpenApiHandler.document(base_url))

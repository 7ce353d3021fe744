"""Base class of the handlers of OpenAI's dialects: errors in OpenAI's format, and media that are fetched before a turn
starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.core.errors import AgentKernelError, InvalidRequest
from agent_kernel.core.messages import VISIBLE_IMAGE_TYPES, Media
from agent_kernel.core.net.fetch import FetchLimits
from jupyter_ext.api.dialects.handler import DialectHandler
from jupyter_ext.api.dialects.openai_content import MAX_MEDIA, visible_media
from jupyter_ext.api.dialects.openai_errors import openai_error, openai_status
from jupyter_ext.api.dialects.openai_validation import name_field
from jupyter_ext.api.http.handler import M
from jupyter_ext.api.schemas.errors import OpenAIError

PICTURE = FetchLimits(total_s=30.0, bytes=MAX_MEDIA, types=(*sorted(VISIBLE_IMAGE_TYPES), "video/"))


class OpenAIHandler(DialectHandler):
    """Sends errors in OpenAI's format, in which a context overflow has the status 400."""

    error_shape = OpenAIError

    def error_body(self, status: int, error: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"error": {**openai_error(status, error), "request_id": self.request_id}}

    def refuse(self, error: AgentKernelError, status: int) -> None:
        super().refuse(error, openai_status(error, status))

    def parse(self, model: type[M]) -> M:
        """Parse the body as every handler does; the error names the invalid field."""
        try:
            return super().parse(model)
        except InvalidRequest as error:
            raise name_field(error, self.request.body, model) from error.__cause__

    async def fetch_media(self, urls: Sequence[str]) -> dict[str, Media]:
        """Fetch remote media under the server's egress policy, with one size limit for all of them. Raises
        InvalidRequest, also for media that cannot be fetched; Forbidden, LocalOnly."""
        if not urls:
            return {}
        pictures = await self.fetch(urls, PICTURE, purpose="a picture")
        try:
            return {url: visible_media(picture.mime, picture.data) for url, picture in zip(urls, pictures, strict=True)}
        except ValueError as error:
            raise InvalidRequest(f"A medium of this request cannot be used: {error}.") from error

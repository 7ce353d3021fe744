"""Base class of the handlers of OpenAI's dialects: errors in OpenAI's format, and media that are fetched before a turn
starts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from agent_kernel.core.errors import AgentKernelError, ContextOverflow, InvalidRequest
from agent_kernel.core.messages import VISIBLE_IMAGE_TYPES, Media
from agent_kernel.core.net.fetch import FetchLimits
from jupyter_ext.api.dialects.handler import DialectHandler
from jupyter_ext.api.dialects.openai_content import MAX_MEDIA, visible_media
from jupyter_ext.api.dialects.openai_errors import openai_error
from jupyter_ext.api.http.handler import M
from jupyter_ext.api.schemas.errors import OpenAIError

PICTURE = FetchLimits(total_s=30.0, bytes=MAX_MEDIA, types=(*sorted(VISIBLE_IMAGE_TYPES), "video/"))
PATH_CHARS, SAID_CHARS = 200, 300


class OpenAIHandler(DialectHandler):
    """Sends errors in OpenAI's format, in which a context overflow has the status 400."""

    error_shape = OpenAIError

    def error_body(self, status: int, error: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"error": {**openai_error(status, error), "request_id": self.request_id}}

    def refuse(self, error: AgentKernelError, status: int) -> None:
        super().refuse(error, 400 if isinstance(error, ContextOverflow) else status)

    def parse(self, model: type[M]) -> M:
        """Parse the body as every handler does; the error names the invalid field."""
        try:
            return super().parse(model)
        except InvalidRequest as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            message, field = describe_mistake(error.__cause__, _json(self.request.body), model)
            raise InvalidRequest(message, details={"param": field}) from error.__cause__

    async def fetch_media(self, urls: Sequence[str]) -> dict[str, Media]:
        """Fetch remote media under the server's egress policy, with one size limit for all of them. Raises
        InvalidRequest, also for media that cannot be fetched; Forbidden, LocalOnly."""
        if not urls:
            return {}
        pictures = await self.fetch(urls, PICTURE, purpose="a picture")
        try:
            return {url: visible_media(one.mime, one.data) for url, one in zip(urls, pictures, strict=True)}
        except ValueError as error:
            raise InvalidRequest(f"A medium of this request cannot be used: {error}.") from error


def describe_mistake(error: ValidationError, body: Any, model: type[BaseModel]) -> tuple[str, str | None]:
    """Return (description of the first validation errors, path of the field with the first one, such as
    ``messages[0].content``). The description does not quote the content of ``body``. The message of an error that
    concerns the whole body begins with the name of a field."""
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    described = [(_path(body, one), one["msg"].removeprefix("Value error, ")[:SAID_CHARS]) for one in errors[:3]]
    more = "" if len(errors) <= 3 else f"; and {len(errors) - 3} more"
    path, first = described[0]
    field = path or first.partition(" ")[0]
    known = path or field in model.model_fields
    return "; ".join(f"{path}: {text}" if path else text for path, text in described) + more, field if known else None


def _path(body: Any, error: Mapping[str, Any]) -> str:
    """Return the path of the field in the body. Validation adds names of union members to its paths; they are
    removed."""
    path, here = "", body
    for place in error["loc"]:
        if isinstance(place, int) and isinstance(here, list) and place < len(here):
            path, here = f"{path}[{place}]", here[place]
        elif isinstance(place, str) and isinstance(here, dict) and place in here:
            path, here = f"{path}.{place}" if path else place, here[place]
    if error["type"] == "missing":
        path = f"{path}.{error['loc'][-1]}" if path else str(error["loc"][-1])
    return path[:PATH_CHARS]


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None

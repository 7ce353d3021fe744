"""What the routes of OpenAI's dialects share: their errors, and media that are fetched before a turn begins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from agent_kernel.core.errors import AgentKernelError, ContextOverflow, FetchFailed, InvalidRequest
from agent_kernel.core.messages import VISIBLE_IMAGE_TYPES, Media
from agent_kernel.core.net.fetch import Fetcher, FetchLimits
from jupyter_ext.api.dialects.content import MAX_MEDIA, seen
from jupyter_ext.api.dialects.handler import DialectHandler
from jupyter_ext.api.dialects.openai_errors import openai_error
from jupyter_ext.api.http.handler import M
from jupyter_ext.api.http.media_fetch import fetch_all
from jupyter_ext.api.schemas.errors import OpenAIError

PICTURE = FetchLimits(total_s=30.0, bytes=MAX_MEDIA, types=(*sorted(VISIBLE_IMAGE_TYPES), "video/"))
PATH_CHARS, SAID_CHARS = 200, 300


class OpenAIHandler(DialectHandler):
    """Errors as OpenAI's clients read them; a context that is too long is a mistake of the request (400) there."""

    error_shape = OpenAIError

    def error_body(self, status: int, error: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"error": {**openai_error(status, error), "request_id": self.request_id}}

    def refuse(self, error: AgentKernelError, status: int) -> None:
        super().refuse(error, 400 if isinstance(error, ContextOverflow) else status)

    def parse(self, model: type[M]) -> M:
        """As any handler, and the error names the field."""
        try:
            return super().parse(model)
        except InvalidRequest as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            said, field = mistake(error.__cause__, _json(self.request.body), model)
            raise InvalidRequest(said, details={"param": field}) from error.__cause__

    async def fetched(self, urls: Sequence[str]) -> dict[str, Media]:
        """Media of other servers, by the one guard of what may be fetched, all together as large as one may be. Raises
        InvalidRequest, also for one that can not be had; Forbidden, LocalOnly."""
        if not urls:
            return {}
        runtime = self.services.runtime
        fetcher = Fetcher(runtime.guard, runtime.exits)
        try:
            found = await fetch_all(fetcher, urls, PICTURE, purpose="a picture")
        except FetchFailed as error:
            raise InvalidRequest(f"A medium of this request can not be had: {error.message}") from error
        try:
            return {url: seen(one.mime, one.data) for url, one in zip(urls, found, strict=True)}
        except ValueError as error:
            raise InvalidRequest(f"A medium of this request can not be used: {error}.") from error


def mistake(error: ValidationError, body: Any, model: type[BaseModel]) -> tuple[str, str | None]:
    """The first mistakes of a ``body`` in words, without what was sent, and the field that has the first of them, as
    ``messages[0].content``. What is wrong with the whole is said in words that begin with a field of the model."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    told = [(_path(body, one), one["msg"].removeprefix("Value error, ")[:SAID_CHARS]) for one in found[:3]]
    more = "" if len(found) <= 3 else f"; and {len(found) - 3} more"
    path, first = told[0]
    field = path or first.partition(" ")[0]
    known = path or field in model.model_fields
    return "; ".join(f"{path}: {said}" if path else said for path, said in told) + more, field if known else None


def _path(body: Any, error: Mapping[str, Any]) -> str:
    """Without the names of alternatives, which only the validation knows."""
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

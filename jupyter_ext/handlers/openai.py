"""What the routes of OpenAI's dialects share: their errors, and media that are fetched before a turn begins."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from agent_kernel.errors import AgentKernelError, ContextOverflow, InvalidRequest
from agent_kernel.messages import SEEN, Media
from agent_kernel.net.fetch import Bounds, Fetcher
from jupyter_ext.dialects.content import MAX_MEDIA, seen
from jupyter_ext.dialects.openai_errors import openai_error
from jupyter_ext.handlers.base import M
from jupyter_ext.handlers.dialect import DialectHandler

PICTURE = Bounds(total_s=30.0, bytes=MAX_MEDIA, types=(*sorted(SEEN), "video/"))
FIELD = re.compile(r"[a-z_]{1,64}")


class OpenAIHandler(DialectHandler):
    """Errors as OpenAI's clients read them; a context that is too long is a mistake of the request (400) there."""

    def error_body(self, status: int, error: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"error": {**openai_error(status, error), "request_id": self.request_id}}

    def refuse(self, error: AgentKernelError, status: int) -> None:
        super().refuse(error, 400 if isinstance(error, ContextOverflow) else status)

    def parse(self, model: type[M]) -> M:
        """As any handler, and the error names the field."""
        try:
            return super().parse(model)
        except InvalidRequest as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                error.details["param"] = param(cause)
            raise

    async def fetched(self, urls: Sequence[str]) -> dict[str, Media]:
        """Media of other servers, by the one guard of what may be fetched. Raises InvalidRequest, Forbidden, LocalOnly,
        FetchFailed."""
        if not urls:
            return {}
        runtime = self.app.runtime
        fetcher = Fetcher(runtime.guard, runtime.exits)
        got = [asyncio.ensure_future(fetcher.get(url, PICTURE, purpose="a picture")) for url in urls]
        try:
            found = await asyncio.gather(*got)
        finally:
            for task in got:
                task.cancel()
        try:
            return {url: seen(one.mime, one.data) for url, one in zip(urls, found, strict=True)}
        except ValueError as error:
            raise InvalidRequest(f"A medium of this request can not be used: {error}.") from error


def param(error: ValidationError) -> str | None:
    """The field with the first mistake: ``messages[0].content``."""
    places = error.errors(include_url=False, include_input=False, include_context=False)[0]["loc"]
    path = ""
    for place in places:
        if isinstance(place, int):
            path += f"[{place}]"
        elif FIELD.fullmatch(place):
            path += f".{place}" if path else place
    return path or None

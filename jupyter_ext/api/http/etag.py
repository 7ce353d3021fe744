"""Reads the revision of a session that a client has seen. The client got it as the ETag of ``sessions/{id}``, and sends
it back as If-Match."""

from __future__ import annotations

import re

from agent_kernel.core.errors import InvalidRequest
from jupyter_ext.api.http.handler import AgentHandler

REVISION = re.compile(r'(?:W/)?"?([0-9]{1,15})"?')


def etag(revision: int) -> str:
    return f'"{revision}"'


def read_if_match(handler: AgentHandler) -> int | None:
    """Return the revision in If-Match; None if the client does not send one. Raises InvalidRequest."""
    header = handler.request.headers.get("If-Match", "*").strip()
    if header == "*":
        return None
    match = REVISION.fullmatch(header)
    if match is None:
        raise InvalidRequest("If-Match must be the ETag of the session: its revision in quotes.")
    return int(match[1])

"""Defines the limits of all routes, and the introduction of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping

from agent_kernel.core.session import MAX_ID
from agent_kernel.tools.base.declared_schema import MAX_VALUES as SCHEMA_VALUES
from jupyter_ext.api.dialects.openai_content import MAX_CALLS, MAX_MESSAGES, MAX_TEXT
from jupyter_ext.api.dialects.openai_functions import MAX_VALUES as TOOLS_VALUES
from jupyter_ext.api.http.json_body import MAX_BODY, MAX_DEPTH, MAX_VALUES
from jupyter_ext.api.native.request_messages import MAX_PARTS
from jupyter_ext.api.native.request_schemas import MAX_DETAILS_BYTES, MAX_PICTURES, MAX_PICTURES_BYTES

LIMITS: Mapping[str, int] = {
    "body_bytes": MAX_BODY,
    "json_depth": MAX_DEPTH,
    "json_values": MAX_VALUES,
    "id_characters": MAX_ID,
    "messages": MAX_MESSAGES,
    "parts_of_a_message": MAX_PARTS,
    "calls_of_a_message": MAX_CALLS,
    "characters_of_all_messages": MAX_TEXT,
    "media_of_a_turn": MAX_PICTURES,
    "media_bytes_of_a_turn": MAX_PICTURES_BYTES,
    "details_bytes_of_a_call": MAX_DETAILS_BYTES,
    "values_of_a_declared_schema": SCHEMA_VALUES,
    "values_of_all_declared_tools": TOOLS_VALUES,
}
DESCRIPTION = """\
This API serves the same agent, sessions, files and permissions that the notebook uses.

**Who may call.** A person, with the token of the server as `Authorization: Bearer ...` or `x-api-key: ...`, or in the \
browser with a cookie and its XSRF token; the kernel of a notebook with its own credential, for the sessions of that \
notebook; and a program with a token that `agent-kernel token new` created, for the routes that the token's scopes \
allow. `x-action` of an operation is the action on `agent` that the server's authorizer must allow: read, write or \
execute.

**Errors.** Every error has a JSON body in the format that the operation names. It contains the id of the request, \
which is also in the header `X-Request-ID` and in the log of the server. A method that a path does not support is \
answered with 405 and the header `Allow`, an unknown path with 404.

**Requests.** Bodies are JSON in UTF-8; numbers must be finite, and an object must not repeat a key. HEAD is answered \
like GET, without the body. The limits are in `x-limits`. A request with more than `body_bytes` bytes is answered with \
413; uploads of files have a limit of their own.
"""

"""The limits of every route, as numbers and as text."""

from __future__ import annotations

from collections.abc import Mapping

from agent_kernel.core.session import MAX_ID
from agent_kernel.tools.base.declared_schema import MAX_VALUES as SCHEMA_VALUES
from jupyter_ext.api.dialects.openai_functions import MAX_VALUES as TOOLS_VALUES
from jupyter_ext.api.http.handler import MAX_BODY
from jupyter_ext.api.http.json_body import MAX_DEPTH, MAX_VALUES
from jupyter_ext.api.native.request_messages import MAX_CALLS, MAX_MESSAGES, MAX_PARTS, MAX_TEXT
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
WORDS = """\
Drives the same agent, sessions, files and permissions as the notebook does.

**Who may call.** A person, with the token of the server as `Authorization: Bearer ...` or `x-api-key: ...`, or in the \
browser with a cookie and its XSRF token; a notebook's kernel with its own credential, for its own sessions; and a \
program with a lasting token (`agent-kernel token new`), for what the scopes of that open. \
`x-action` of an operation is what the server's authorizer is asked: read, write or execute of `agent`.

**Errors.** Each has a JSON body of the shape that the operation names, and the id of the request, which is also in \
the header `X-Request-ID` and in the log. A verb that a path lacks is 405 with `Allow`; a path that is not there is 404.

**Requests.** JSON in UTF-8, whose numbers are finite and whose objects name each key once; HEAD is answered as GET, \
without the body. The limits are in `x-limits`: beyond `body_bytes` a request is 413, whatever else is in it; uploads \
of files have a limit of their own.
"""


def describe_limits() -> str:
    return WORDS

"""A lasting token in the headers of a request. In no address: those are written down everywhere."""

from __future__ import annotations

import re

from tornado.httputil import HTTPHeaders

from agent_kernel.tokens import is_token

_SCHEME = re.compile(r"(?:token|bearer)\s+(\S+)\s*", re.IGNORECASE)


def taken(headers: HTTPHeaders) -> str:
    """The text of the token, out of ``Authorization`` or else ``x-api-key``; empty where none is. It is taken out of
    the headers: an identity provider that asks a hub about what it finds there is not to send it on."""
    name = "Authorization" if "Authorization" in headers else "x-api-key"
    given = headers.get(name, "").strip()
    scheme = _SCHEME.fullmatch(given)
    text = scheme[1] if scheme else given if name == "x-api-key" else ""
    if not is_token(text):
        return ""
    headers.pop("Authorization", None)
    headers.pop("x-api-key", None)
    return text

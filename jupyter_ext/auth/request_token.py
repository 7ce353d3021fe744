"""Reads the token in the headers of a request, and removes a long-lived API token from them. A token in the URL is not
accepted, because proxies, browsers and logs record URLs."""

from __future__ import annotations

import re

from tornado.httputil import HTTPHeaders, HTTPServerRequest

from agent_kernel.core.api_tokens import looks_like_token
from agent_kernel.core.errors import Unauthenticated

_SCHEME = re.compile(r"(?:token|bearer)\s+(\S+)\s*", re.IGNORECASE)


HEADER = "Send it in a header: Authorization: Bearer TOKEN."
QUERY = "token"
"""The query parameter in which Jupyter's identity providers accept a token."""


def drop_from_address(request: HTTPServerRequest) -> bool:
    """Remove a token from the query of ``request``, so that no identity provider sees the token. Return whether there
    was one."""
    request.arguments.pop(QUERY, None)
    return request.query_arguments.pop(QUERY, None) is not None


def has_token_header(headers: HTTPHeaders) -> bool:
    """Return whether ``Authorization`` carries a token, valid or not."""
    return bool(_SCHEME.fullmatch(headers.get("Authorization", "").strip()))


def header_token(headers: HTTPHeaders) -> str:
    """Return the token in ``Authorization``, valid or not; empty if there is none."""
    scheme = _SCHEME.fullmatch(headers.get("Authorization", "").strip())
    return scheme[1] if scheme else ""


def unauthenticated_error(headers: HTTPHeaders, *, in_address: bool = False) -> Unauthenticated:
    """Return the error for an unknown caller, with a message that fits the credential that was sent."""
    if has_token_header(headers):
        return Unauthenticated("This server does not know the token of this request.")
    if in_address:
        return Unauthenticated("This server does not accept a token in the URL of a request.", hint=HEADER)
    return Unauthenticated("Log in, or send a token of this server.", hint=HEADER)


def take_token(headers: HTTPHeaders) -> str:
    """Remove a long-lived API token from ``Authorization`` or ``x-api-key`` and return it; empty if there is none.

    It is removed so that an identity provider, which may ask a hub about the token it finds, does not send it on.
    """
    name = "Authorization" if "Authorization" in headers else "x-api-key"
    value = headers.get(name, "").strip()
    scheme = _SCHEME.fullmatch(value)
    text = scheme[1] if scheme else value if name == "x-api-key" else ""
    if not looks_like_token(text):
        return ""
    headers.pop("Authorization", None)
    headers.pop("x-api-key", None)
    return text

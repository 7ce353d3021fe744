"""Converts errors to Anthropic's format. The functions have no side effects."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

KINDS: Mapping[int, str] = MappingProxyType(
    {
        401: "authentication_error",
        402: "billing_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
        504: "timeout_error",
        529: "overloaded_error",
    }
)


def kind_of(status: int) -> str:
    """Return Anthropic's error type for an HTTP status."""
    return KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")


def body(status: int, error: Mapping[str, Any], request_id: str) -> dict[str, Any]:
    """Return the body of the response for an error ``{code, message, hint, details}``. In addition to Anthropic's
    ``type`` and ``message`` it has agent-kernel's ``code`` and ``details``."""
    description = {
        "type": kind_of(status),
        "message": f"{error.get('message', '')} {error.get('hint', '')}".strip(),
        "code": error.get("code", ""),
        "request_id": request_id,
    }
    if details := error.get("details"):
        description["details"] = details
    return {"type": "error", "error": description, "request_id": request_id}

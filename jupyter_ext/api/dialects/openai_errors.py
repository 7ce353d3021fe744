"""Converts errors to OpenAI's format ``{message, type, param, code}``, with agent-kernel's ``hint`` added."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agent_kernel.core.errors import AgentKernelError, ContextOverflow

KINDS: Mapping[int, str] = MappingProxyType(
    {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
)
"""The error type by HTTP status. Other statuses below 500 have the type ``invalid_request_error``, all remaining ones
``server_error``."""
CODES: Mapping[str, str] = MappingProxyType(
    {
        "unknown_model": "model_not_found",
        "context_overflow": "context_length_exceeded",
        "unauthenticated": "invalid_api_key",
        "too_many_requests": "rate_limit_exceeded",
        "budget_spent": "insufficient_quota",
    }
)
"""agent-kernel's error codes for which OpenAI has other names that programs look for."""


def openai_status(error: AgentKernelError, status: int) -> int:
    """Return the HTTP status for an error that has ``status`` in the other APIs."""
    return 400 if isinstance(error, ContextOverflow) else status


def openai_error(status: int, error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error in OpenAI's format.

    ``error`` is ``{code, message, hint, details}``. The detail ``param`` is the invalid field, where it is known. The
    detail ``code`` is OpenAI's code for an error that has another code in the other APIs.
    """
    details = error.get("details") or {}
    code = str(details.get("code") or error.get("code") or "")
    hint = str(error.get("hint") or "")
    body = {
        "message": f"{error.get('message') or ''} {hint}".strip(),
        "type": KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error"),
        "param": details.get("param"),
        "code": CODES.get(code, code) or None,
    }
    return body | ({"hint": hint} if hint else {})

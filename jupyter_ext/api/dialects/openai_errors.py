"""Errors in OpenAI's shape, which its clients read: ``{message, type, param, code}``; ours has ``hint`` too."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

KINDS: Mapping[int, str] = MappingProxyType(
    {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
)
"""By status; other mistakes of a client are ``invalid_request_error``, what is not the client's is ``server_error``."""
CODES: Mapping[str, str] = MappingProxyType(
    {"unknown_model": "model_not_found", "context_overflow": "context_length_exceeded"}
)
"""Those that programs look for by OpenAI's name."""


def openai_error(status: int, error: Mapping[str, Any]) -> dict[str, Any]:
    """``error`` is ``{code, message, hint, details}``; the field with the mistake, where one is known, is the detail
    ``param``."""
    code = str(error.get("code") or "")
    hint = str(error.get("hint") or "")
    body = {
        "message": f"{error.get('message') or ''} {hint}".strip(),
        "type": KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error"),
        "param": (error.get("details") or {}).get("param"),
        "code": CODES.get(code, code) or None,
    }
    return body | ({"hint": hint} if hint else {})

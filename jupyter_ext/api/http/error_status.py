"""The HTTP status of each error, and the error for a status or for the JSON of an error."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agent_kernel.core.errors import (
    AgentKernelError,
    Conflict,
    ContextOverflow,
    EngineError,
    FetchFailed,
    FileGone,
    FileNotProduced,
    FileTooLarge,
    Forbidden,
    InvalidRequest,
    ModelMissing,
    NotFound,
    PullFailed,
    QuotaExceeded,
    SandboxUnavailable,
    ServerStopping,
    ServerUnreachable,
    StoreError,
    StoreFull,
    TokenInvalid,
    TooManyRequests,
    Unauthenticated,
    Unprocessable,
    UpstreamFailed,
)

STATUS: Mapping[type[AgentKernelError], int] = MappingProxyType(
    {
        InvalidRequest: 400,
        FileTooLarge: 413,
        Unprocessable: 422,
        FileGone: 410,
        FileNotProduced: 422,
        Forbidden: 403,
        Unauthenticated: 401,
        TokenInvalid: 401,
        NotFound: 404,
        Conflict: 409,
        ModelMissing: 409,
        ContextOverflow: 413,
        UpstreamFailed: 502,
        EngineError: 503,
        PullFailed: 502,
        FetchFailed: 502,
        TooManyRequests: 429,
        QuotaExceeded: 507,
        SandboxUnavailable: 503,
        ServerStopping: 503,
        ServerUnreachable: 503,
        StoreFull: 507,
        StoreError: 500,
        AgentKernelError: 500,
    }
)
"""HTTP status by class of error. A subclass without an entry has the status of its base class."""
CODES: Mapping[int, str] = MappingProxyType(
    {
        400: "invalid_request",
        401: "unauthenticated",
        403: "forbidden",
        404: "not_found",
        405: "method_not_allowed",
        413: "too_large",
        415: "unsupported_media_type",
    }
)
"""Error code by HTTP status, for errors that Jupyter or tornado raise before a handler of this extension runs."""


def status_of(error: AgentKernelError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def error_of(wire: Mapping[str, Any]) -> AgentKernelError:
    """Return the error that a turn ended with, from ``{code, message, hint, details}``; AgentKernelError for an
    unknown code."""
    kinds, todo = {}, [AgentKernelError]
    while todo:
        kind = todo.pop()
        kinds[kind("").code] = kind
        todo += kind.__subclasses__()
    error_class = kinds.get(str(wire.get("code")), AgentKernelError)
    return error_class(str(wire.get("message", "")), hint=str(wire.get("hint", "")), details=wire.get("details") or {})

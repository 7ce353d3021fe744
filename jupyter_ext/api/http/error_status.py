"""Maps each error to its HTTP status, and a status to the code of an error."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from agent_kernel.core import errors
from agent_kernel.core.errors import AgentKernelError

STATUS: Mapping[type[AgentKernelError], int] = MappingProxyType(
    {
        errors.InvalidRequest: 400,
        errors.FileTooLarge: 413,
        errors.RequestTooLarge: 413,
        errors.Unprocessable: 422,
        errors.FileGone: 410,
        errors.FileNotProduced: 422,
        errors.Forbidden: 403,
        errors.Unauthenticated: 401,
        errors.TokenInvalid: 401,
        errors.NotFound: 404,
        errors.Conflict: 409,
        errors.ModelMissing: 409,
        errors.ContextOverflow: 413,
        errors.UpstreamFailed: 502,
        errors.EngineError: 503,
        errors.PullFailed: 502,
        errors.FetchFailed: 502,
        errors.TooManyRequests: 429,
        errors.QuotaExceeded: 507,
        errors.SandboxUnavailable: 503,
        errors.ServerStopping: 503,
        errors.ServerUnreachable: 503,
        errors.HubUnavailable: 503,
        errors.StoreFull: 507,
        errors.StoreError: 500,
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

"""Types of the bodies of error responses: one for each dialect, and those of the native routes and MCP."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict


class ErrorFacts(TypedDict):
    """An error. ``code`` is for programs, ``message`` and ``hint`` are for people. The server's log has the same
    ``request_id``."""

    code: str
    message: str
    hint: str
    details: dict[str, Any]
    request_id: str


class Error(TypedDict):
    """The body of an error response of all routes that belong to no dialect."""

    error: ErrorFacts


class ModelErrorFacts(ErrorFacts):
    """An error in the native format with the additional fields that OpenAI's clients read."""

    type: str
    param: str | None


class ModelError(TypedDict):
    """The error of ``models``, ``files``, ``skills`` and unknown routes, for clients of every API."""

    error: ModelErrorFacts


class ApprovalError(Error):
    """The error of the approval routes. ``status`` is present if the question does not exist, as in mistral.rs."""

    status: NotRequired[Literal["not_found"]]


class OpenAIErrorFacts(TypedDict):
    """An error in OpenAI's format. ``message`` ends with the ``hint``, which is also a field of its own. ``param``
    names the invalid field."""

    message: str
    type: str
    param: str | None
    code: str | None
    hint: NotRequired[str]
    request_id: str


class OpenAIError(TypedDict):
    """The error of ``chat/completions`` and ``responses``, in OpenAI's format."""

    error: OpenAIErrorFacts


class RpcErrorFacts(TypedDict):
    code: int
    message: str
    data: NotRequired[Any]


class RpcError(TypedDict):
    """The JSON-RPC error of MCP, for a message that reached its endpoint."""

    jsonrpc: Literal["2.0"]
    id: str | int | None
    error: RpcErrorFacts


class AnthropicErrorFacts(TypedDict):
    """An error in Anthropic's format, with the additional fields ``code`` and ``details``."""

    type: str
    message: str
    code: str
    request_id: str
    details: NotRequired[dict[str, Any]]


class AnthropicError(TypedDict):
    """The error of ``messages``, in Anthropic's format."""

    type: Literal["error"]
    error: AnthropicErrorFacts
    request_id: str

"""How errors look: one shape for each dialect."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict


class ErrorFacts(TypedDict):
    """``code`` is a word for programs, ``message`` and ``hint`` are for people; ``request_id`` is in the log too."""

    code: str
    message: str
    hint: str
    details: dict[str, Any]
    request_id: str


class Error(TypedDict):
    """Of every route that is no dialect of another house."""

    error: ErrorFacts


class ModelErrorFacts(ErrorFacts):
    """With what OpenAI's clients look for beside."""

    type: str
    param: str | None


class ModelError(TypedDict):
    """Of ``models``, ``files``, ``skills`` and unknown routes, for clients of every API."""

    error: ModelErrorFacts


class ApprovalError(Error):
    """``status`` where there is no such question, as mistral.rs says it."""

    status: NotRequired[Literal["not_found"]]


class OpenAIErrorFacts(TypedDict):
    """``message`` ends with the ``hint``, which is told by itself too. ``param`` is the field with the mistake."""

    message: str
    type: str
    param: str | None
    code: str | None
    hint: NotRequired[str]
    request_id: str


class OpenAIError(TypedDict):
    """Of ``chat/completions`` and ``responses``, as OpenAI's clients read it."""

    error: OpenAIErrorFacts


class RpcErrorFacts(TypedDict):
    code: int
    message: str
    data: NotRequired[Any]


class RpcError(TypedDict):
    """Of MCP, once a message has reached it: JSON-RPC's."""

    jsonrpc: Literal["2.0"]
    id: str | int | None
    error: RpcErrorFacts


class AnthropicErrorFacts(TypedDict):
    """``code`` and ``details`` are ours, for programs that know them."""

    type: str
    message: str
    code: str
    request_id: str
    details: NotRequired[dict[str, Any]]


class AnthropicError(TypedDict):
    """Of ``messages``, as Anthropic's clients read it."""

    type: Literal["error"]
    error: AnthropicErrorFacts
    request_id: str

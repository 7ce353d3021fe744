"""Builds lists of models in the formats of OpenAI and Anthropic. The functions have no side effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from jupyter_ext.turns.dialect_request import AGENT

OBJECT = "model"
STATUS: Mapping[str, str] = MappingProxyType({"ready": "loaded"})
"""mistral.rs's names for states of a model that differ from agent-kernel's: a model that answers at once is
``loaded``."""


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """The tools of the agent: whether there are any (``available``), and the number of connected MCP servers and of the
    tools of these servers."""

    available: bool = False
    mcp_tools: int = 0
    mcp_servers: int = 0


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The properties of a model that a request may name.

    ``id`` is the name that a request uses; ``state`` is unloaded, loading, ready or failed. A property that is unknown
    before the model is loaded is None, or 0 for ``context_length``. ``created`` is the time at which the model was
    downloaded, or else the time at which the server started.
    """

    id: str
    title: str
    created: float
    owned_by: str
    state: str
    local: bool
    host: str = ""
    context_length: int = 0
    capabilities: Mapping[str, bool | None] = field(default_factory=dict)


def plain_and_agent_models(models: Sequence[ModelFacts], tools: ToolFacts) -> list[dict[str, Any]]:
    """Return each model twice: as a plain model, and as the agent with the tools of this server."""
    plain = [openai_model(model) for model in models]
    return [*plain, *[openai_model(model, tools) for model in models]]


def openai_model(model: ModelFacts, tools: ToolFacts | None = None) -> dict[str, Any]:
    """Return a model in OpenAI's format.

    With ``tools``, the result describes the agent on this model. OpenAI defines four of the fields; the others come
    from mistral.rs or are agent-kernel's own.
    """
    agent = tools or ToolFacts()
    return {
        "id": AGENT * (tools is not None) + model.id,
        "object": OBJECT,
        "created": int(model.created),
        "owned_by": model.owned_by,
        "title": model.title,
        "status": STATUS.get(model.state, model.state),
        "local": model.local,
        "host": model.host,
        "context_length": model.context_length or None,
        "capabilities": dict(model.capabilities),
        "tools_available": agent.available,
        "mcp_tools_count": agent.mcp_tools,
        "mcp_servers_connected": agent.mcp_servers,
    }


def anthropic_model(model: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a model from ``openai_model``. No model here has a retirement date."""
    return {
        "id": model["id"],
        "type": OBJECT,
        "display_name": model["title"],
        "created_at": datetime.fromtimestamp(model["created"], UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": model["context_length"],
        "max_tokens": None,
        "capabilities": None,
        "line": None,
        "deprecated_at": None,
        "retires_at": None,
    }


def anthropic_page(models: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return all models on one page; there are never many."""
    page = [anthropic_model(entry) for entry in models]
    return {
        "data": page,
        "has_more": False,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }

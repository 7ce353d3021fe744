"""Shared parts of the tests of single tools: a position in a round, a context, and the emitted events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_kernel.core.events import EventBody
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import ToolContext
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.tools.base.tool_source import ToolSourceContext
from tests.turns import KEY


def occasion(events: list[EventBody] | None = None, **request: Any) -> ToolSourceContext:
    told = events if events is not None else []
    return ToolSourceContext(KEY, TurnRequest("hello", **request), told.append)


def context(
    name: str = "tool", arguments: Mapping[str, Any] | None = None, events: list[EventBody] | None = None
) -> ToolContext:
    told = events if events is not None else []
    return ToolContext(KEY, "turn-1", 1, ToolCall("call-1", name, arguments or {}), told.append)

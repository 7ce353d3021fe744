"""Functions that a caller declares and runs itself: a call of one ends the turn, the next turn brings its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_kernel.core.protocols import Tool, ToolContext, ToolOutput, ToolSpec
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext

AWAITED = "The caller has not brought the result of this call."
"""What stands as its result until then, and for good where it never comes."""


class CallerTool:
    """Has a specification like any tool, for the model; the turn ends before it would run."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput(AWAITED, "interrupted")


class CallerTools:
    """They cost the server nothing, so a request has them also where it wants none of the server's tools."""

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        tools: list[Tool] = [CallerTool(spec) for spec in occasion.request.functions if spec.where == "caller"]
        return OfferedTools(tuple(tools))

    async def aclose(self) -> None: ...

"""Offers functions that a caller declares and runs itself. A call of such a function ends the turn; the caller sends
the result with its next turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_kernel.core.protocols import ToolContext, ToolOutput, ToolSpec
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext

AWAITED = "The caller has not sent the result of this call."
"""Stored as the result of a caller's call until the caller sends the real result; it stays if the caller never does."""


class CallerTool:
    """Describes a caller's function to the model. The tool itself never runs: a call of it ends the turn."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput(AWAITED, "interrupted")


class CallerTools:
    """Offers the functions of the caller. They are offered even if the request disables the server's tools, because the
    server does not run them."""

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        return OfferedTools(tuple(CallerTool(spec) for spec in occasion.request.functions if spec.where == "caller"))

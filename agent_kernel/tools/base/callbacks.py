"""Offers tools that a program defines by a schema and a separate callback function, as in mistral.rs's Python API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agent_kernel.core.protocols import Tool, ToolContext, ToolOutput, ToolSpec
from agent_kernel.tools.base.time_limited_call import TimeLimitedFunction
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext

Callback = Callable[[str, dict[str, Any]], Any]
"""The type of a callback. It is called with the name of the tool and the arguments, may be sync or async, and returns
text or anything else that a tool function may return."""


class CallbackTool:
    """A tool that runs a callback. Its arguments are checked against the spec that the request declared."""

    def __init__(self, spec: ToolSpec, callback: Callback) -> None:
        self.spec = replace(spec, kind="function", source="user")
        self._call = TimeLimitedFunction(callback, spec.name)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return await self._call(self.spec.name, dict(arguments))


class CallbackTools:
    """Offers those ``functions`` of a request for which a callback of the same name exists."""

    def __init__(self, callbacks: Mapping[str, Callback]) -> None:
        self._callbacks = dict(callbacks)

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        tools: list[Tool] = [
            CallbackTool(spec, self._callbacks[spec.name])
            for spec in occasion.request.functions
            if spec.name in self._callbacks and occasion.wants("functions", spec.name)
        ]
        return OfferedTools(tuple(tools))

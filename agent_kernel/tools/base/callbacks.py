"""Tools that a program brings as a schema and a callback apart, as mistral.rs's Python API has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agent_kernel.core.protocols import Tool, ToolContext, ToolOutput, ToolSpec
from agent_kernel.tools.base.bounded_call import BoundedFunction
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext

Callback = Callable[[str, dict[str, Any]], Any]
"""Name and arguments -> text, or whatever a function that is a tool may return; sync or async."""


class CallbackTool:
    """Its arguments were checked against the spec that the request declared."""

    def __init__(self, spec: ToolSpec, callback: Callback) -> None:
        self.spec = replace(spec, kind="function", source="user")
        self._call = BoundedFunction(callback, spec.name)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return await self._call(self.spec.name, dict(arguments))


class CallbackTools:
    """``callbacks`` by name run those ``functions`` of a request that have the name."""

    def __init__(self, callbacks: Mapping[str, Callback]) -> None:
        self._callbacks = dict(callbacks)

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        found: list[Tool] = [
            CallbackTool(spec, self._callbacks[spec.name])
            for spec in occasion.request.functions
            if spec.name in self._callbacks and occasion.wants("functions", spec.name)
        ]
        return OfferedTools(tuple(found))

    async def aclose(self) -> None: ...

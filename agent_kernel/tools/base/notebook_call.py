"""Defines a tool whose calls run in the notebook: in its kernel, in a draft of the kernel, or in an open page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_kernel.core.protocols import ToolContext, ToolOutput, ToolSpec
from agent_kernel.tools.base.notebook_access import NotebookRunner


class NotebookCallTool:
    """Passes each call to ``runner``, which runs it according to the name of the tool."""

    def __init__(self, spec: ToolSpec, runner: NotebookRunner) -> None:
        self.spec = spec
        self._runner = runner

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return await self._runner.offer(context)

"""Chooses the tool protocol of a model that has no configured one, by its size, its chat template and the request's
tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from agent_kernel.core.messages import Message
from agent_kernel.core.protocols import Chunk, EngineRequest, ToolSpec
from agent_kernel.engines.local.backend import LoadedModel
from agent_kernel.engines.local.decoding.completion import Completer
from agent_kernel.engines.local.tool_calling import code_fence_prompt
from agent_kernel.engines.local.tool_calling.code_fence import Fence
from agent_kernel.engines.local.tool_calling.native import Native

SMALL = 3_000_000_000
"""Parameters below which a model writes code better than JSON. Of ten notebook tasks Qwen2.5-Coder-0.5B solved 0 with
native calls parsed strictly, 3 with lenient parsing and 9 with the fence; the 1.5B model solved 0, 7 and 10. Larger
models were not measured."""


def is_small(loaded: LoadedModel) -> bool:
    """Return whether the model has fewer than SMALL parameters, or its size is unknown."""
    return loaded.parameters < SMALL


class AutoProtocol:
    """Uses the code fence for a small model if ``python`` is the only tool in the request and its history, otherwise
    native calls. Their tools are passed to the chat template if it lists tools, and are otherwise described in
    words."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._small = is_small(loaded)
        self._fence = Fence(template=loaded.template)
        self._native = Native(loaded, fences=self._small)

    def stream(self, request: EngineRequest, completer: Completer) -> AsyncGenerator[Chunk, None]:
        chosen = self._fence if self._small and _only_python(request.tools, request.messages) else self._native
        return chosen.stream(request, completer)


def _only_python(tools: Iterable[ToolSpec], messages: Iterable[Message]) -> bool:
    names = {tool.name for tool in tools} | {call.name for message in messages for call in message.calls}
    return names <= {code_fence_prompt.TOOL}

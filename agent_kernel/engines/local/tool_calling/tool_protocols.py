"""The tool protocols by name. The catalog states the protocol of a model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from agent_kernel.core.errors import EngineError
from agent_kernel.core.protocols import Chunk, EngineRequest
from agent_kernel.engines.local.backend import LoadedModel
from agent_kernel.engines.local.decoding.completion import Completer
from agent_kernel.engines.local.tool_calling.auto_protocol import AutoProtocol, is_small
from agent_kernel.engines.local.tool_calling.code_fence import Fence
from agent_kernel.engines.local.tool_calling.native import Native


class ToolProtocol(Protocol):
    def stream(self, request: EngineRequest, completer: Completer) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of one round, EndChunk last. Closing the generator stops decoding."""
        ...


TOOL_PROTOCOLS: Mapping[str, Callable[[LoadedModel], ToolProtocol]] = MappingProxyType(
    {
        "fence": lambda loaded: Fence(template=loaded.template),
        "native": lambda loaded: Native(loaded, fences=is_small(loaded)),
        "auto": AutoProtocol,
    }
)


def protocol_for(name: str, loaded: LoadedModel) -> ToolProtocol:
    """Create the protocol ``name``. Raises EngineError if it does not exist."""
    if name not in TOOL_PROTOCOLS:
        raise EngineError(f"There is no tool protocol {name!r}.")
    return TOOL_PROTOCOLS[name](loaded)

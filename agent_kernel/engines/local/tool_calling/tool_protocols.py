"""Finds the tool protocol for a name. The catalog states the name for each of its models. The protocol ``auto`` chooses
one of the others for each request, by the model's size and the request's tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from agent_kernel.core.errors import EngineError
from agent_kernel.core.protocols import Chunk, EngineRequest
from agent_kernel.engines.local.backend import LoadedModel
from agent_kernel.engines.local.decoding.completion import Completer
from agent_kernel.engines.local.tool_calling import code_fence_examples, code_fence_prompt
from agent_kernel.engines.local.tool_calling.code_fence_protocol import FIRM_MARGIN, Fence
from agent_kernel.engines.local.tool_calling.native_protocol import Native

SMALL = 3_000_000_000
"""Number of parameters below which a model writes code better than JSON. Of ten notebook tasks, Qwen2.5-Coder-0.5B
solved 0 with native calls parsed strictly, 3 with native calls parsed leniently, and 9 with the code fence. The 1.5B
model solved 0, 7 and 10. Larger models were not measured."""

FIRM = 1_000_000_000
"""Number of parameters from which a model itself tells questions that need code from those that do not, so that the
code fence uses FIRM_MARGIN, KNOWLEDGE_EXAMPLES and FORM_EXAMPLES, and keeps the examples in a second try."""


class ToolProtocol(Protocol):
    def stream(self, request: EngineRequest, completer: Completer) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of one round, EndChunk last. Closing the generator stops decoding."""
        ...


class AutoProtocol:
    """The protocol ``auto``. It uses the code fence for a small model if ``python`` is the only tool in the request and
    its history, and native calls otherwise. With native calls, the chat template receives the tools if it can list
    them; otherwise the system message describes them."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._small = is_small(loaded)
        self._fence = fence_for(loaded)
        self._native = Native(loaded, fences=self._small)

    def stream(self, request: EngineRequest, completer: Completer) -> AsyncGenerator[Chunk, None]:
        names = {tool.name for tool in request.tools}
        names |= {call.name for message in request.messages for call in message.calls}
        uses_fence = self._small and names <= {code_fence_prompt.TOOL}
        return (self._fence if uses_fence else self._native).stream(request, completer)


def is_small(loaded: LoadedModel) -> bool:
    """Return whether the model has fewer than SMALL parameters, or its size is unknown."""
    return loaded.parameters < SMALL


def fence_for(loaded: LoadedModel) -> Fence:
    """Return the code fence protocol with the margins and examples for a model of this size. A size that is unknown
    counts as small."""
    if loaded.parameters >= FIRM:
        return Fence(
            FIRM_MARGIN,
            FIRM_MARGIN,
            template=loaded.template,
            examples=code_fence_examples.KNOWLEDGE_EXAMPLES,
            form_examples=code_fence_examples.FORM_EXAMPLES,
            examples_in_retry=True,
        )
    return Fence(template=loaded.template)


TOOL_PROTOCOLS: Mapping[str, Callable[[LoadedModel], ToolProtocol]] = MappingProxyType(
    {
        "fence": fence_for,
        "native": lambda loaded: Native(loaded, fences=is_small(loaded)),
        "auto": AutoProtocol,
    }
)


def protocol_for(name: str, loaded: LoadedModel) -> ToolProtocol:
    """Return the protocol with this name for the loaded model. Raises EngineError if there is no such protocol."""
    if name not in TOOL_PROTOCOLS:
        raise EngineError(f"There is no tool protocol {name!r}.", hint=f"Use one of {', '.join(TOOL_PROTOCOLS)}.")
    return TOOL_PROTOCOLS[name](loaded)

"""Implements an engine that returns recorded replies, for replays that run only the tools again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from agent_kernel.core.messages import Message, Usage
from agent_kernel.core.protocols import CallChunk, Chunk, EndChunk, EngineInfo, EngineRequest, TextChunk


class RecordedEngine:
    """An engine whose answers are ``replies`` in order, one for each model call. The agent makes a call without tools
    after repeated failures; such a call gets the last reply."""

    def __init__(self, replies: Sequence[Message]) -> None:
        self._replies = list(replies)

    def info(self) -> EngineInfo:
        return EngineInfo("recorded", True, 0, vision=True, state="ready")

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        if not request.tools:
            self._replies = self._replies[-1:]
        reply = self._replies.pop(0) if self._replies else Message("assistant")
        if reply.text:
            yield TextChunk(reply.text)
        calls = reply.calls if request.tools else ()
        for call in calls:
            yield CallChunk(call)
        yield EndChunk("calls" if calls else "stop", Usage())

    async def aclose(self) -> None:
        """Do nothing, because the engine holds no resources."""

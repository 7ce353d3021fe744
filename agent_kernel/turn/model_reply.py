"""Assembles the reply of one model call from its chunks."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field

from agent_kernel.core.messages import Message, ToolCall, assistant
from agent_kernel.core.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    Engine,
    EngineRequest,
    ReasoningChunk,
    TextChunk,
    TokenLogprob,
)


@dataclass(slots=True)
class Reply:
    """The part of a model's reply that has arrived so far."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    end: EndChunk | None = None

    def add(self, chunk: Chunk) -> None:
        match chunk:
            case TextChunk(text, logprobs):
                self.text.append(text)
                self.logprobs += logprobs
            case ReasoningChunk(text):
                self.reasoning.append(text)
            case CallChunk(call):
                self.calls.append(call)
            case EndChunk():
                self.end = chunk

    async def read(self, engine: Engine, request: EngineRequest) -> None:
        """Run a model call whose chunks are not shown to anybody, and add the chunks to this reply. Raises
        EngineError."""
        async with aclosing(engine.stream(request)) as chunks:
            async for chunk in chunks:
                self.add(chunk)

    @property
    def chars(self) -> int:
        """Total characters of the text, the reasoning and the call arguments."""
        chars = sum(map(len, (*self.text, *self.reasoning)))
        return chars + sum(len(str(call.arguments)) for call in self.calls)

    @property
    def worth_saving(self) -> bool:
        return self.end is not None or bool(self.text or self.reasoning)

    @property
    def message(self) -> Message:
        """The reply as a message. Calls of an incomplete reply never run, so the message omits them."""
        message = assistant("".join(self.text), self.calls if self.end else (), "".join(self.reasoning))
        return message if self.end else message.with_status("interrupted")

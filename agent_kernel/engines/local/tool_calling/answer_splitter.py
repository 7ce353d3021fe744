"""Deltas of an answer become its parts: thinking is taken away first, then calls are found in what is left."""

from __future__ import annotations

from collections.abc import Iterable

from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import CallChunk, ReasoningChunk, TextChunk, TokenLogprob
from agent_kernel.engines.local.decoding.reasoning import ReasoningSplitter
from agent_kernel.engines.local.tool_calling.call_parser import PYTHON, CallParser
from agent_kernel.engines.local.tool_calling.template_response_parser import DeclaredParser


class AnswerReader:
    """``answer`` is all that was written beside the thinking, ``text`` and ``calls`` what was made of it. ``done``: no
    more is wanted after the calls so far; ``rest`` is what of it was read already. Log probabilities come with the text
    that was held back with them; those of a call are dropped."""

    def __init__(self, parser: CallParser | DeclaredParser, reasoning: ReasoningSplitter, *, parallel: bool) -> None:
        self._parser = parser
        self._reasoning = reasoning
        self._parallel = parallel
        self._logprobs: list[TokenLogprob] = []
        self.answer = ""
        self.text = ""
        self.calls: list[ToolCall] = []
        self.done = False
        self.whole = True
        """No call was left out."""

    @property
    def rest(self) -> str:
        return self._parser.rest

    def push(self, delta: TextChunk) -> list[TextChunk | ReasoningChunk | CallChunk]:
        self._logprobs += delta.logprobs
        return self._read(self._reasoning.push(delta.text))

    def finish(self, *, cut: bool) -> list[TextChunk | ReasoningChunk | CallChunk]:
        """``cut``: the answer did not end by itself; half a call is text then."""
        parts = self._read(self._reasoning.finish())
        if self.done:
            return parts
        parts += self._taken(self._parser.finish(cut=cut))
        left = [TextChunk("", tuple(self._logprobs))] if self._logprobs and not self.calls else []
        return parts + left

    def _read(self, parts: Iterable[TextChunk | ReasoningChunk]) -> list[TextChunk | ReasoningChunk | CallChunk]:
        read: list[TextChunk | ReasoningChunk | CallChunk] = []
        for part in parts:
            if isinstance(part, ReasoningChunk):
                read.append(part)
                self._logprobs.clear()
            elif not self.done:
                self.answer += part.text
                read += self._taken(self._parser.push(part.text))
        return read

    def _taken(
        self, parts: Iterable[TextChunk | ReasoningChunk | CallChunk]
    ) -> list[TextChunk | ReasoningChunk | CallChunk]:
        """Up to the call after which nothing is wanted: the only one allowed, or code, whose output comes first."""
        taken: list[TextChunk | ReasoningChunk | CallChunk] = []
        for part in parts:
            if self.done:
                self.whole = False
                break
            if isinstance(part, CallChunk):
                self.calls.append(part.call)
                self.done = not self._parallel or (part.call.name == PYTHON and self._parser.fenced)
                self._logprobs.clear()
            elif isinstance(part, TextChunk):
                self.text += part.text
                taken.append(TextChunk(part.text, tuple(self._logprobs)))
                self._logprobs.clear()
                continue
            taken.append(part)
        return taken

"""Splits the deltas of an answer into reasoning, text and tool calls. The reasoning is separated first, then the calls
in the rest."""

from __future__ import annotations

from collections.abc import Iterable

from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import CallChunk, ReasoningChunk, TextChunk, TokenLogprob
from agent_kernel.engines.local.decoding.reasoning import ReasoningSplitter
from agent_kernel.engines.local.tool_calling.call_parser import PYTHON, CallParser
from agent_kernel.engines.local.tool_calling.template_response_parser import DeclaredParser


class AnswerReader:
    """Splits an answer into parts while it arrives; the caller passes each piece to ``push``. ``answer`` is the output
    without the reasoning; ``text`` and ``calls`` are its parts. If ``done`` is true, the rest of the output is ignored,
    because the model must not continue after its calls; ``rest`` is the ignored text that has already been pushed. Log
    probabilities are returned with their text; those of a call are dropped."""

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
        """False if the answer contains further calls, which were ignored and are not in ``calls``."""

    @property
    def rest(self) -> str:
        return self._parser.rest

    def push(self, delta: TextChunk) -> list[TextChunk | ReasoningChunk | CallChunk]:
        self._logprobs += delta.logprobs
        return self._read(self._reasoning.push(delta.text))

    def finish(self, *, cut: bool) -> list[TextChunk | ReasoningChunk | CallChunk]:
        """Return the last parts. ``cut`` means that the answer did not end by itself: an incomplete call is then
        returned as text."""
        parts = self._read(self._reasoning.finish())
        if self.done:
            return parts
        parts += self._accept(self._parser.finish(cut=cut))
        last_parts = [TextChunk("", tuple(self._logprobs))] if self._logprobs and not self.calls else []
        return parts + last_parts

    def _read(self, parts: Iterable[TextChunk | ReasoningChunk]) -> list[TextChunk | ReasoningChunk | CallChunk]:
        read: list[TextChunk | ReasoningChunk | CallChunk] = []
        for part in parts:
            if isinstance(part, ReasoningChunk):
                read.append(part)
                self._logprobs.clear()
            elif not self.done:
                self.answer += part.text
                read += self._accept(self._parser.push(part.text))
        return read

    def _accept(
        self, parts: Iterable[TextChunk | ReasoningChunk | CallChunk]
    ) -> list[TextChunk | ReasoningChunk | CallChunk]:
        """Return the parts up to the last call that may run. If only one call is allowed, that is the first call.
        Otherwise it is the first python call in a code fence, if there is one, because the model must see its output
        before it makes another call."""
        accepted: list[TextChunk | ReasoningChunk | CallChunk] = []
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
                accepted.append(TextChunk(part.text, tuple(self._logprobs)))
                self._logprobs.clear()
                continue
            accepted.append(part)
        return accepted

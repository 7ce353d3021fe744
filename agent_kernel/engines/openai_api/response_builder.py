"""Builds one answer from the objects of a server's stream. Differences between servers are handled here."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.errors import EngineError
from agent_kernel.core.messages import ToolCall, parse_arguments, strict_call_id
from agent_kernel.core.protocols import Chunk, EngineRequest, ReasoningChunk, TextChunk, TokenLogprob
from agent_kernel.engines.openai_api.endpoint_client import END
from agent_kernel.engines.openai_api.text_seam import AnswerRestarted, TextSeam, without_end

MAX_CALLS = 128
MAX_TOKENS = 1 << 40
REASONING = ("reasoning_content", "reasoning")
"""Names of the field with the reasoning: the first is that of DeepSeek, SGLang and llama-server, the second that of
vLLM, Ollama and OpenRouter. A server that sends both sends the same text in them."""
CHARS_PER_TOKEN = 4.0
"""Average number of characters per token in English and code, for servers that do not count tokens. The result is
always labelled an estimate."""


@dataclass(slots=True)
class Slot:
    """A tool call that is still being received. ``arguments`` contains the pieces of its arguments so far."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    @property
    def raw(self) -> str:
        return "".join(self.arguments)


class ResponseBuilder:
    """Builds the answer to a request. ``add`` takes the objects of the stream in order and returns the chunks that can
    be shown at once. Calls and the reason for the end are known only at the end. If the stream breaks off, the caller
    calls ``break_off``, and adds the objects of the rest.

    ``text`` contains the delivered pieces of text. ``prompt_tokens`` and ``completion_tokens`` are the counts that the
    server reports for its last stream, or None; ``characters`` is the length of what this stream contains.
    """

    def __init__(self, request: EngineRequest) -> None:
        self._request = request
        self._taken = {strict_call_id(call.id) for message in request.messages for call in message.calls}
        self.text: list[str] = []
        self.has_reasoned = False
        self._begin_stream()

    def _begin_stream(self) -> None:
        self._slots: list[Slot] = []
        self._at: dict[int, Slot] = {}
        self._finish = ""
        self._ended = False
        self._seam = TextSeam("".join(self.text))
        self.stopped = ""
        """The stop sequence at which the answer ended, if the server reports it (vLLM and SGLang do)."""
        self.characters = 0
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.reused_tokens = 0

    def break_off(self) -> None:
        """Forget the calls that have arrived so far, and everything else that has not been delivered. The next object
        belongs to the stream of the rest."""
        self._begin_stream()

    def add(self, event: Mapping[str, Any]) -> list[Chunk]:
        """Add an object of the stream and return the chunks that it contains. Raises AnswerRestarted if the rest of an
        answer is the answer from its beginning."""
        self._ended = self._ended or event is END
        self._count(event.get("usage"))
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        chunks: list[Chunk] = []
        if isinstance(choice, Mapping):
            if isinstance(finish := choice.get("finish_reason"), str) and finish:
                self._finish = finish
                self.stopped = _matched_stop(choice, self._request.sampling.stop)
            delta = choice.get("delta") or choice.get("message")
            chunks = self._delta(delta, choice) if isinstance(delta, Mapping) else []
        return [*chunks, *self._deliver(self._seam.flush())] if self.finished else chunks

    @property
    def finished(self) -> bool:
        """Whether the server has marked the end of the answer. If the connection closes without this mark, the answer
        may be incomplete."""
        return self._ended or bool(self._finish)

    @property
    def growing(self) -> int:
        """A counter that increases whenever the model has written something, including calls that cannot be shown
        yet."""
        return self.characters + len(self._slots)

    @property
    def has_begun(self) -> bool:
        """Whether anything of the answer has arrived: a token, a call, or its end."""
        return self.finished or self.growing > 0 or bool(self.text) or self.has_reasoned

    @property
    def sent_back(self) -> str:
        """The delivered text in the form in which it is the beginning of a request for the rest."""
        return without_end("".join(self.text))

    @property
    def received_tokens(self) -> int:
        """An estimate of the tokens of the delivered text, rather too high than too low. A piece has one token or
        more."""
        return max(len(self.text), estimate_tokens(sum(map(len, self.text))))

    def calls(self) -> list[ToolCall]:
        """Return the calls that may run. A call that the token limit cut off, and calls that the request does not
        allow, are not among them."""
        if not self._request.tools or self._request.tool_choice == "none":
            return []
        slots = [slot for slot in self._slots if slot.name]
        if self.reason == "length":
            slots = slots[:-1] if slots and slots[-1] is self._slots[-1] else slots
        slots = slots if self._request.parallel_calls else slots[:1]
        return [
            ToolCall(self._id(slot.id), slot.name, parse_arguments(slot.raw) if slot.raw.strip() else {})
            for slot in slots
        ]

    @property
    def cut_call(self) -> str:
        """The arguments, as text, of the call that the token limit cut off; empty if none was cut off."""
        if self.reason != "length" or not self._slots or not self._request.tools:
            return ""
        return self._slots[-1].raw

    @property
    def reason(self) -> str:
        """The reason why the answer ended: stop, length or calls. Raises EngineError for an answer that the server
        aborted."""
        if self._finish == "length":
            return "length"
        if self._finish in ("content_filter", "error", "abort", "cancelled"):
            raise EngineError(f"The server aborted the answer: {self._finish}.", hint="Ask again.")
        return "calls" if self._slots else "stop"

    def _delta(self, delta: Mapping[str, Any], choice: Mapping[str, Any]) -> list[Chunk]:
        chunks: list[Chunk] = []
        thought = next((text for name in REASONING if (text := _clean(delta.get(name)))), "")
        text, more = _content(delta.get("content"))
        thought, text = thought + more, text + _clean(delta.get("refusal"))
        if thought and self._seam.is_rest:
            # The server takes the request for a new answer, or parses the rest of the text as reasoning.
            raise AnswerRestarted
        if thought:
            self.has_reasoned = True
            chunks.append(ReasoningChunk(thought))
        if text:
            logprobs = _logprobs(choice.get("logprobs")) if self._request.sampling.logprobs else ()
            chunks += self._deliver(self._seam.push(text, logprobs))
        self.characters += len(thought) + len(text)
        for piece in _mappings(delta.get("tool_calls")):
            self._piece(piece)
        return chunks

    def _deliver(self, chunk: TextChunk | None) -> list[Chunk]:
        if chunk is None:
            return []
        self.text.append(chunk.text)
        return [chunk]

    def _piece(self, piece: Mapping[str, Any]) -> None:
        function = piece.get("function")
        function = function if isinstance(function, Mapping) else {}
        name, arguments = _clean(function.get("name")), function.get("arguments")
        slot = self._slot(piece.get("index"), _clean(piece.get("id")), name)
        slot.name = slot.name or name
        if isinstance(arguments, Mapping):  # the arguments are complete, as in Ollama's own format
            slot.arguments = [json.dumps(arguments)]
        elif isinstance(arguments, str):
            slot.arguments.append(arguments)
        self.characters += len(name) + (len(arguments) if isinstance(arguments, str | Mapping) else 0)

    def _slot(self, index: Any, call_id: str, name: str) -> Slot:
        """Return the call to which a received piece belongs. A piece with an ``index`` belongs to the call with this
        index. However, a piece that has a name and a new id begins a new call, because some servers send index 0 for
        every call. A piece without an index belongs to the call with its id, and a piece without both belongs to the
        last call."""
        at = index if isinstance(index, int) and not isinstance(index, bool) else None
        slot = self._at.get(at) if at is not None else self._find_slot(call_id, name)
        if slot is not None and call_id and slot.id and slot.id != call_id and name:
            slot = None
        if slot is None:
            if len(self._slots) == MAX_CALLS:
                raise EngineError(f"The server sent more than {MAX_CALLS} calls in one answer.")
            slot = Slot()
            self._slots.append(slot)
        if at is not None:
            self._at[at] = slot
        slot.id = slot.id or call_id
        return slot

    def _find_slot(self, call_id: str, name: str) -> Slot | None:
        if call_id:
            same = next((slot for slot in self._slots if slot.id == call_id), None)
            if same is not None:
                return same
        return self._slots[-1] if self._slots and not name else None

    def _id(self, server_id: str) -> str:
        """Return the server's id of a call if it can be stored and is unique in the conversation, otherwise a new
        id."""
        usable = 0 < len(server_id) <= 200 and not any(unicodedata.category(char) in ("Cc", "Cs") for char in server_id)
        call_id = server_id if usable and strict_call_id(server_id) not in self._taken else f"c{os.urandom(4).hex()}"
        self._taken.add(strict_call_id(call_id))
        return call_id

    def _count(self, usage: Any) -> None:
        if not isinstance(usage, Mapping):
            return
        prompt, completion = _tokens(usage.get("prompt_tokens")), _tokens(usage.get("completion_tokens"))
        self.prompt_tokens = prompt if prompt is not None else self.prompt_tokens
        self.completion_tokens = completion if completion is not None else self.completion_tokens
        details = usage.get("prompt_tokens_details")
        cached = _tokens(details.get("cached_tokens")) if isinstance(details, Mapping) else None
        self.reused_tokens = min(cached or 0, self.prompt_tokens or 0) or self.reused_tokens


def estimate_tokens(characters: int) -> int:
    return max(1, round(characters / CHARS_PER_TOKEN))


def _matched_stop(choice: Mapping[str, Any], stops: Sequence[str]) -> str:
    candidates = [choice.get(key) for key in ("stop_reason", "matched_stop")]
    return next((stop for stop in stops if stop in candidates), "")


def _content(content: Any) -> tuple[str, str]:
    """Return (text, reasoning) of a message's content, which some servers send as a list of parts."""
    if not isinstance(content, list):
        return _clean(content), ""
    text, thought = "", ""
    for part in _mappings(content):
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            thought += "".join(_clean(piece.get("text")) for piece in _mappings(inner)) or _clean(inner)
        else:
            text += _clean(part.get("text"))
    return text, thought


def _clean(value: Any) -> str:
    """Return ``value`` as text that can be stored; an empty string if it is not text. Halves of surrogate pairs, which
    JSON can contain, are joined or replaced."""
    if not isinstance(value, str):
        return ""
    if value.isascii():
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, Mapping))


def _tokens(value: Any) -> int | None:
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_TOKENS
    return value if usable else None


def _logprobs(value: Any) -> tuple[TokenLogprob, ...]:
    entries = _mappings(value.get("content")) if isinstance(value, Mapping) else iter(())
    return tuple(
        TokenLogprob(*token, tuple(_probable(_mappings(entry.get("top_logprobs")))))
        for entry in entries
        for token in _probable(iter((entry,)))
    )


def _probable(entries: Iterator[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    for entry in entries:
        if isinstance(logprob := entry.get("logprob"), int | float):
            yield _clean(entry.get("token")), float(logprob)

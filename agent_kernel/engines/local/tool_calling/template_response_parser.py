"""Parses answers in which calls are not JSON in tags, with the response parser of transformers and a declaration of the
form of calls.

The model's tokenizer declares the form. If the tokenizer declares no form, the parser uses the entry of FORMS that fits
the model's chat template. Calls in JSON are parsed by ``call_parser.py`` only, which also accepts the forms that models
write instead of the declared one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import CallChunk, ReasoningChunk
from agent_kernel.engines.local.backend import LoadedModel
from agent_kernel.engines.local.tool_calling.call_json import broken_call, call_of
from agent_kernel.engines.local.tool_calling.call_parser import CallParser, Part

REASONING, CALLS = ("reasoning_content", "reasoning", "thinking"), "tool_calls"
_NAMED = {"function": {"name": "{name}", "arguments": "{content}"}}
_TEXT = {"content": "text", "content_args": {"strip": False}}
FORMS: Mapping[tuple[str, ...], Mapping[str, Any]] = MappingProxyType(
    {
        # Qwen3-Coder and Qwen3.5 write one element for each argument. Some models omit the outer tag.
        ("<function=", "<parameter="): {
            "start_anchor": "<|im_start|>assistant\n",
            "fields": {
                CALLS: {
                    "open_pattern": r"(?:<tool_call>\s*)?<function=(?P<name>[^<>\n]+)>",
                    "close": "</function>",
                    "repeats": True,
                    "content": "xml-inline",
                    "content_args": {"tag_pattern": r"<parameter=(?P<key>[^<>\n]+)>\n?(?P<value>.*?)\n?</parameter>"},
                    "transform": _NAMED,
                },
                "content": _TEXT,
            },
        },
        # Gemma 4 writes JSON without quotes around keys, and with its own quotes around strings.
        ("<|tool_call>call:",): {
            "start_anchor": "<|turn>model\n",
            "fields": {
                CALLS: {
                    "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
                    "close": "<tool_call|>",
                    "repeats": True,
                    "content": "json",
                    "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
                    "transform": _NAMED,
                },
                "content": _TEXT,
            },
        },
    }
)
"""Maps strings that a chat template must contain to the response template for the parser of transformers (version 1 of
its specification)."""
MARKS = ("<|tool_call>", "<tool_call|>", '<|"|>', "<function=", "</function>")


def form_of(loaded: LoadedModel) -> Mapping[str, Any] | None:
    """Return the declaration of the form in which this model writes calls; None if it writes JSON, or if no form is
    known."""
    if loaded.response_template is not None:
        return loaded.response_template
    fits = (form for signs, form in FORMS.items() if all(sign in loaded.template for sign in signs))
    return next(fits, None)


class DeclaredParser:
    """Splits an answer whose calls have a declared ``form``. It is used like ``CallParser``, with ``push`` and
    ``finish``. ``content`` parses the text outside the calls. Raises ImportError if transformers is missing, and
    ValueError for an invalid form."""

    def __init__(self, form: Mapping[str, Any], tools: Sequence[Mapping[str, Any]], content: CallParser) -> None:
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        # This is the only import of transformers' parser. It happens in the worker, and only for models that need it.
        from transformers.utils.chat_parsing import ResponseParser

        self._new: Callable[[], Any] = lambda: ResponseParser(dict(form), "", tools=[dict(tool) for tool in tools])
        self._parser = self._new()
        self._names = [tool["function"]["name"] for tool in tools]
        self._content = content
        self._raw = ""
        self._open = ""

    @property
    def fenced(self) -> bool:
        return self._content.fenced

    @property
    def rest(self) -> str:
        return self._raw

    def push(self, text: str) -> list[Part | ReasoningChunk]:
        parts: list[Part | ReasoningChunk] = []
        # The text is passed one character at a time, so that the text of each event is known.
        for char in text:
            self._raw += char
            try:
                events = self._parser.feed(char)
            except ValueError:
                parts += self._recover()
            else:
                parts += self._read(events)
        return parts

    def finish(self, *, cut: bool = False) -> list[Part | ReasoningChunk]:
        parts: list[Part | ReasoningChunk] = []
        if cut and self._open == CALLS:
            parts += self._content.push(self._raw)
        else:
            try:
                _, events = self._parser.finalize()
            except ValueError:
                parts += self._recover()
            else:
                parts += self._read(events)
        return parts + list(self._content.finish(cut=cut))

    def _recover(self) -> list[Part | ReasoningChunk]:
        """Return parts for text that does not match the declared form. Text inside a call becomes an invalid call,
        which the toolbox answers with an error for the model. All other text becomes plain text."""
        raw, field = self._raw, self._open
        self._parser, self._raw, self._open = self._new(), "", ""
        if field == CALLS:
            return [CallChunk(broken_call(raw, self._names))]
        return list(self._content.push(raw))

    def _read(self, events: Iterable[Mapping[str, Any]]) -> list[Part | ReasoningChunk]:
        parts: list[Part | ReasoningChunk] = []
        for event in events:
            field = event["field"]
            match event["type"]:
                case "region_open":
                    self._open = field
                    parts += self._content.pause() if field == CALLS else ()
                case "region_chunk" if field in REASONING:
                    parts.append(ReasoningChunk(event["text"]))
                case "region_chunk" if field != CALLS:
                    parts += self._content.push(event["text"])
                    self._raw = self._raw.removeprefix(event["text"])
                case "region_close":
                    self._open = ""
                    if field == CALLS:
                        calls = self._calls(event["value"]) or [broken_call(self._raw, self._names)]
                        parts += [CallChunk(call) for call in calls]
                    if field == CALLS or field in REASONING:
                        self._raw = ""
        return parts

    def _calls(self, value: Any) -> list[ToolCall]:
        calls = [call_of(item, tagged=True) for item in (value if isinstance(value, list) else [value])]
        return [call for call in calls if call is not None]

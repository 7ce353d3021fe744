"""Splits a streamed answer into text and tool calls, in all forms in which models are known to write calls.

The tagged forms are ``<tool_call>`` with JSON, Mistral's ``[TOOL_CALLS]`` and Llama's ``<|python_tag|>``. The untagged
forms, at the beginning of a line, are JSON, JSON in a code fence, and for some models Python in a code fence. Text is
returned as it arrives. Text that may still become a call is held back until this is decided.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import CallChunk, TextChunk
from agent_kernel.engines.local.decoding.text_stream import overlap
from agent_kernel.engines.local.tool_calling.call_json import broken_call, calls_in, end_of_json, may_be_call, new_call

TAGS: Mapping[str, str] = MappingProxyType({"<tool_call>": "</tool_call>", "<function_call>": "</function_call>"})
LISTED, CODED = "[TOOL_CALLS]", "<|python_tag|>"
MARKS = (*TAGS, *TAGS.values(), LISTED, CODED, "[ARGS]")
"""Tags of the known forms of calls. They may be special tokens of a vocabulary, and must be decoded to text
nevertheless."""
PYTHON = "python"
FENCE = "```"
_JSON_INFO, _PYTHON_INFO = ("", "json", "tool_call", "tool_calls"), ("python", "py")
_INDENT = re.compile(r"[ \t]*")
_CLOSE = re.compile(r"(?:^|\n)[ \t]*```")
_LISTED_NAME = re.compile(r"\s*([\w.:-]{1,64})\s*(?:\[CALL_ID\]\s*\w+\s*)?(?:\[ARGS\])?\s*(?=\{)")
LISTED_HEAD = 200
"""Maximum number of characters between ``[TOOL_CALLS]`` and the arguments, for a call that has its name before its
arguments."""
_BETWEEN = " \t\r\n,;"
_OPENERS = re.compile("|".join(map(re.escape, (*TAGS, LISTED, CODED))))
MAX_FALSE_STARTS = 1000
"""Maximum number of lines in one pushed piece of text that begin like an untagged call without being one; further lines
are not checked and count as text. The time of each check grows with the length of the text that follows, and a hostile
answer may consist of such lines."""
UNCLOSED = 64
"""JSON without an end counts as this number of false starts, since it is scanned to the end of the text."""

Part = TextChunk | CallChunk


class CallParser:
    """Splits an answer, which the caller passes to ``push`` piece by piece and ends with ``finish``. ``tools`` contains
    the names of the offered tools; if it is empty, everything is text. With ``fences``, a fenced python block is a call
    of the tool ``python``, if that tool is offered; otherwise it is an example for the user.

    Calls of unknown tools are returned too, because the toolbox answers them with an error. The result does not depend
    on how the text is divided into pushes.
    """

    def __init__(self, tools: Sequence[str], *, fences: bool = False) -> None:
        self._tools = tools
        self._fences = fences and PYTHON in tools
        self._held = ""
        self._at_line_start = True
        self._in_block = False
        self._after_call = False
        self._space = ""
        self._has_text = False
        self._unclosed = False
        self._parts: list[Part] = []
        self._marks: list[int] | None = None
        self._absent: set[str] = set()
        self._false_starts = 0
        self.fenced = False
        """Whether the last call was a fenced block."""

    @property
    def rest(self) -> str:
        """The text that was pushed and is still held back."""
        return self._held

    def push(self, text: str) -> list[Part]:
        if not self._tools:
            return [TextChunk(text)] if text else []
        return self._parse(text, last=False, cut=False)

    def finish(self, *, cut: bool = False) -> list[Part]:
        """Return the last parts. ``cut`` means that the answer was cut off: an incomplete call is then returned as
        text."""
        parts = self._parse("", last=True, cut=cut)
        self._add_text("", flush=True)
        return parts

    def pause(self) -> list[Part]:
        """Prepare for a call that another parser reads. Return the text that is held back; the text that is pushed next
        counts as text after a call."""
        parts = self._parse("", last=True, cut=True)
        self._space, self._after_call = "", True
        return parts

    def _parse(self, text: str, *, last: bool, cut: bool) -> list[Part]:
        self._held += text
        self._parts = []
        self._marks, self._absent, self._false_starts = None, set(), 0
        if self._unclosed and not last and "}" not in text and "]" not in text:
            return self._parts  # JSON that was incomplete at the last push still is, so it is not scanned again
        self._unclosed = False
        while self._held:
            taken = self._step(last=last, cut=cut)
            if not taken:
                break
        return self._parts

    def _step(self, *, last: bool, cut: bool) -> bool:
        """Move the next text or call from the held text to the parts. Return False if the decision needs more text."""
        if self._after_call and not self._skip_between(last=last):
            return False
        at = self._trigger(last=last)
        if at:
            self._take_text(at)
            return True
        return bool(self._held) and self._take_region(last=last, cut=cut)

    def _skip_between(self, *, last: bool) -> bool:
        """Drop separators, and closing tags without an opening tag, directly after a call. Return False if the decision
        needs more text."""
        rest = self._held.lstrip(_BETWEEN)
        while close := next((tag for tag in TAGS.values() if rest.startswith(tag)), ""):
            rest = rest.removeprefix(close).lstrip(_BETWEEN)
        if not rest:
            self._held = ""
            return False
        if not last and any(tag.startswith(rest) for tag in TAGS.values()):
            self._held = rest
            return False
        self._held, self._after_call, self._at_line_start = rest, False, True
        self._space = "\n" if self._has_text else ""
        return True

    def _trigger(self, *, last: bool) -> int:
        """Return how many characters at the beginning of the held text cannot belong to a call; 0 if a call may begin
        there."""
        text = self._held
        first = len(text) - self._mark(last=last)
        if self._false_starts > MAX_FALSE_STARTS:
            return first
        start = 0 if self._at_line_start else text.find("\n") + 1 or len(text)
        while start < first:
            if self._opens(text, start):
                return start
            start = text.find("\n", start) + 1 or len(text)
        # An indent at the end of the held text may belong to a fence or to JSON.
        return first

    def _mark(self, *, last: bool) -> int:
        """Return the distance from the next opening tag, or from an incomplete opening tag, to the end of the held
        text; 0 if there is none. The distance is counted from the end, so that it stays valid when text is removed from
        the beginning."""
        text = self._held
        if self._marks is None:
            offsets = [len(text) - tag.start() for tag in _OPENERS.finditer(text)]
            if not last:
                offsets.append(max(overlap(text, tag) for tag in (*TAGS, LISTED, CODED)))
            self._marks = offsets[::-1]
        while self._marks and self._marks[-1] > len(text):
            self._marks.pop()
        return self._marks[-1] if self._marks else 0

    def _opens(self, text: str, start: int) -> bool:
        """Return whether the line at ``start`` begins, or may still begin, with a code fence or a bracket."""
        begin = _INDENT.match(text, start).end()  # type: ignore[union-attr]  # it matches the empty text too
        rest = text[begin : begin + len(LISTED)]
        if self._in_block:
            return not rest or FENCE.startswith(rest[:3])
        return not rest or (rest[0] in "{[" and not rest.startswith(LISTED)) or FENCE.startswith(rest[:3])

    def _take_text(self, size: int) -> None:
        text, self._held = self._held[:size], self._held[size:]
        self._at_line_start = text.endswith("\n")
        self._add_text(text)

    def _add_text(self, text: str, *, flush: bool = False) -> None:
        """Add text to the parts. White space at its end is held back, because it is dropped if a call follows. With
        ``flush``, it is added too."""
        text = self._space + text
        complete_text = text if flush else text.rstrip()
        self._space = text[len(complete_text) :]
        if complete_text:
            self._has_text = True
            self._parts.append(TextChunk(complete_text))

    def _call(self, calls: Sequence[ToolCall], rest: str) -> bool:
        self._parts += [CallChunk(call) for call in calls]
        self._held, self._space = rest, ""
        self._after_call, self.fenced = True, False
        return True

    def _take_region(self, *, last: bool, cut: bool) -> bool:
        text = self._held
        for tag, close in TAGS.items():
            if text.startswith(tag):
                return self._parse_tagged(text, tag, close, last=last, cut=cut)
        if text.startswith(LISTED):
            return self._parse_listed(text, last=last, cut=cut)
        if text.startswith(CODED):
            return last and self._parse_coded(text, cut=cut)
        begin = text.lstrip(" \t")
        if not last and begin and LISTED.startswith(begin):
            return False
        if self._at_line_start and FENCE.startswith(begin[:3]) and begin:
            return self._parse_fenced(text, begin, last=last, cut=cut)
        if self._at_line_start and begin[:1] in ("{", "[") and not self._in_block:
            return self._parse_bare(text, begin, last=last, cut=cut)
        if not last:
            return False
        self._take_text(len(text))
        return True

    def _parse_tagged(self, text: str, tag: str, close: str, *, last: bool, cut: bool) -> bool:
        """Parse a call that begins with ``tag`` and ends at ``close``. Some models forget the closing tag; the call
        then ends at the next opening tag or at the end of the answer. Return False if more text is needed."""
        ends = [at for mark in (close, tag) if (at := self._find(text, mark, len(tag))) >= 0]
        if not ends and not last:
            return False
        if not ends and cut:
            return self._as_text(len(text))
        end = min(ends, default=len(text))
        body, rest = text[len(tag) : end], text[end:].removeprefix(close)
        calls = calls_in(body, tagged=True)
        if not calls:
            # Some models add text after the JSON inside the tag; the JSON before it is still a call.
            value = body.lstrip()
            cut_at = end_of_json(value) if value[:1] in ("{", "[") else None
            calls = calls_in(value[:cut_at], tagged=True) if cut_at else []
            if calls and cut_at and value[cut_at:].strip():
                rest = value[cut_at:] + rest
                self._marks = None
        return self._call(calls or [broken_call(body, self._tools)], rest)

    def _find(self, text: str, mark: str, start: int) -> int:
        """Search like ``str.find``, but do not search again for a ``mark`` that this push has already found to be
        absent."""
        at = -1 if mark in self._absent else text.find(mark, start)
        if at < 0:
            self._absent.add(mark)
        return at

    def _parse_listed(self, text: str, *, last: bool, cut: bool) -> bool:
        """Parse a JSON list of calls, or a name followed by its arguments. Return False if more text is needed."""
        value, form = text[len(LISTED) :].lstrip(), "{}"
        if value[:1] not in ("{", "["):
            name_match = _LISTED_NAME.match(value[:LISTED_HEAD])
            if name_match is None:
                return False if not last and len(value) < LISTED_HEAD else self._as_text(len(LISTED))
            value, form = value[name_match.end() :], f'{{{{"name": "{name_match[1]}", "arguments": {{}}}}}}'
        end = end_of_json(value)
        if end is None and not last:
            self._unclosed = True
            return False
        if end is None and cut:
            return self._as_text(len(text))
        body = form.format(value[:end])
        return self._call(calls_in(body, tagged=True) or [broken_call(body, self._tools)], value[end:] if end else "")

    def _parse_coded(self, text: str, *, cut: bool) -> bool:
        """Parse a call that consists of the rest of the answer: JSON, or the plain code of a python call."""
        body = text[len(CODED) :].strip()
        if cut or not body:
            return self._as_text(len(text))
        calls = calls_in(body)
        if not calls and PYTHON in self._tools:
            calls = [new_call(PYTHON, {"code": body})]
        return self._call(calls, "") if calls else self._as_text(len(text))

    def _parse_fenced(self, text: str, begin: str, *, last: bool, cut: bool) -> bool:
        head, newline, body = begin.partition("\n")
        if not newline and not last:
            return False
        info = head.strip().strip("`").lower()
        if self._in_block or not head.startswith(FENCE) or not newline:
            return self._fence_as_text(text, head, newline)
        code = self._fences and info in _PYTHON_INFO
        if not code and (info not in _JSON_INFO or may_be_call(body.lstrip()) is False):
            return self._fence_as_text(text, head, newline)
        close = _CLOSE.search(body)
        if close is None and not last:
            return False
        if close is None and cut:
            return self._as_text(len(text))
        content, rest = (body[: close.start()], body[close.end() :]) if close else (body, "")
        calls = calls_in(content)
        if code and not calls and content.strip():
            calls = [new_call(PYTHON, {"code": content})]
        if not calls:
            return self._fence_as_text(text, head, newline)
        self._call(calls, rest)
        self.fenced = True
        return True

    def _fence_as_text(self, text: str, head: str, newline: str) -> bool:
        """Add the line of a code fence to the parts as text. If the line opens a block, everything up to the closing
        fence is text as well. Return True, as ``_step`` expects."""
        self._false_starts += 1
        if head.startswith(FENCE) and FENCE not in head[len(FENCE) :].lstrip("`"):
            self._in_block = not self._in_block
        self._take_text(len(text) - len(text.lstrip(" \t")) + len(head) + len(newline))
        return True

    def _parse_bare(self, text: str, begin: str, *, last: bool, cut: bool) -> bool:
        may_be = may_be_call(begin)
        if may_be is None and not last:
            return False
        end = end_of_json(begin) if may_be else None
        if may_be and end is None and not last:
            self._unclosed = True
            return False
        calls = [] if not may_be or (end is None and cut) else calls_in(begin[:end])
        if calls:
            return self._call(calls, begin[end:] if end else "")
        self._false_starts += UNCLOSED if may_be and end is None else 1
        return self._as_text(len(text) - len(begin) + 1)

    def _as_text(self, size: int) -> bool:
        """Add the first ``size`` characters of the held text as text, because they look like a call but are not one.
        Return True, as ``_step`` expects."""
        self._take_text(size)
        return True

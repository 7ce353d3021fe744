"""An answer as it comes, told apart into text and tool calls, in every form that models are known to write; pure.

Tagged: ``<tool_call>`` JSON, Mistral's ``[TOOL_CALLS]``, Llama's ``<|python_tag|>``. Untagged, at the beginning of a
line: bare JSON, fenced JSON and, for models that do so, fenced python. Text is given out as it comes; what may still
become a call is held back until it is one or can not be one any more.
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
"""What may be a special token in a vocabulary, and must be seen all the same."""
PYTHON = "python"
FENCE = "```"
_JSON_INFO, _PYTHON_INFO = ("", "json", "tool_call", "tool_calls"), ("python", "py")
_INDENT = re.compile(r"[ \t]*")
_CLOSE = re.compile(r"(?:^|\n)[ \t]*```")
_LISTED_NAME = re.compile(r"\s*([\w.:-]{1,64})\s*(?:\[CALL_ID\]\s*\w+\s*)?(?:\[ARGS\])?\s*(?=\{)")
LISTED_HEAD = 200
"""Characters within which a name and its marks must stand after ``[TOOL_CALLS]``."""
_BETWEEN = " \t\r\n,;"
_OPENERS = re.compile("|".join(map(re.escape, (*TAGS, LISTED, CODED))))
MAX_FALSE_STARTS = 1000
"""Of lines in one piece of text that begin like an untagged call and are none; the others are text unseen. Each costs
the length of what follows, and a hostile answer is made of nothing else."""
UNCLOSED = 64
"""As many false starts is JSON that has no end: it is read to the end of the text."""

Part = TextChunk | CallChunk


class CallParser:
    """``push`` text, then ``finish``. ``tools`` are the names on offer; without any, all is text. ``fences``: a fenced
    python block is a call of the tool python if that is offered, and not an example for the person. Names that are not
    on offer are passed on: the toolbox answers. How the text is split over pushes makes no difference."""

    def __init__(self, tools: Sequence[str], *, fences: bool = False) -> None:
        self._tools = tools
        self._fences = fences and PYTHON in tools
        self._held = ""
        self._at_line_start = True
        self._in_block = False
        self._after_call = False
        self._space = ""
        self._spoken = False
        self._unclosed = False
        self._parts: list[Part] = []
        self._marks: list[int] | None = None
        self._absent: set[str] = set()
        self._false_starts = 0
        self.fenced = False
        """The newest call was a fenced block."""

    @property
    def rest(self) -> str:
        """What was pushed and is not given out yet."""
        return self._held

    def push(self, text: str) -> list[Part]:
        if not self._tools:
            return [TextChunk(text)] if text else []
        return self._parsed(text, last=False, cut=False)

    def finish(self, *, cut: bool = False) -> list[Part]:
        """``cut``: the answer ended because its tokens were used up; half a call is text then, never a call."""
        parts = self._parsed("", last=True, cut=cut)
        self._say("", flush=True)
        return parts

    def pause(self) -> list[Part]:
        """A call begins that another parser reads: what is held is text, and what follows stands after a call."""
        parts = self._parsed("", last=True, cut=True)
        self._space, self._after_call = "", True
        return parts

    def _parsed(self, text: str, *, last: bool, cut: bool) -> list[Part]:
        self._held += text
        self._parts = []
        self._marks, self._absent, self._false_starts = None, set(), 0
        if self._unclosed and not last and "}" not in text and "]" not in text:
            return self._parts  # JSON that was open before is still open: it is not scanned again
        self._unclosed = False
        while self._held:
            taken = self._step(last=last, cut=cut)
            if not taken:
                break
        return self._parts

    def _step(self, *, last: bool, cut: bool) -> bool:
        """Gives out the next piece of text or call; False when more text is needed to tell."""
        if self._after_call and not self._skip_between(last=last):
            return False
        at = self._trigger(last=last)
        if at:
            self._take_text(at)
            return True
        return bool(self._held) and self._take_region(last=last, cut=cut)

    def _skip_between(self, *, last: bool) -> bool:
        """Separators and a closing tag that nobody opened, right after a call."""
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
        self._space = "\n" if self._spoken else ""
        return True

    def _trigger(self, *, last: bool) -> int:
        """How much of the held text is surely text; 0 when a call may begin right there."""
        text = self._held
        first = len(text) - self._mark(last=last)
        if self._false_starts > MAX_FALSE_STARTS:
            return first
        start = 0 if self._at_line_start else text.find("\n") + 1 or len(text)
        while start < first:
            if self._opens(text, start):
                return start
            start = text.find("\n", start) + 1 or len(text)
        # An indent at the end of what is known may turn out to be one of a fence or of JSON.
        return first

    def _mark(self, *, last: bool) -> int:
        """How far the next tag is from the end of the held text, of which only the beginning is ever taken away."""
        text = self._held
        if self._marks is None:
            found = [len(text) - tag.start() for tag in _OPENERS.finditer(text)]
            if not last:
                found.append(max(overlap(text, tag) for tag in (*TAGS, LISTED, CODED)))
            self._marks = found[::-1]
        while self._marks and self._marks[-1] > len(text):
            self._marks.pop()
        return self._marks[-1] if self._marks else 0

    def _opens(self, text: str, start: int) -> bool:
        """Whether the line at ``start`` begins, or may still begin, with a fence or a bracket."""
        begin = _INDENT.match(text, start).end()  # type: ignore[union-attr]  # it matches the empty text too
        rest = text[begin : begin + len(LISTED)]
        if self._in_block:
            return not rest or FENCE.startswith(rest[:3])
        return not rest or (rest[0] in "{[" and not rest.startswith(LISTED)) or FENCE.startswith(rest[:3])

    def _take_text(self, size: int) -> None:
        text, self._held = self._held[:size], self._held[size:]
        self._at_line_start = text.endswith("\n")
        self._say(text)

    def _say(self, text: str, *, flush: bool = False) -> None:
        """White space waits for what comes after it: before a call it is no text."""
        text = self._space + text
        shown = text if flush else text.rstrip()
        self._space = text[len(shown) :]
        if shown:
            self._spoken = True
            self._parts.append(TextChunk(shown))

    def _call(self, calls: Sequence[ToolCall], rest: str) -> bool:
        self._parts += [CallChunk(call) for call in calls]
        self._held, self._space = rest, ""
        self._after_call, self.fenced = True, False
        return True

    def _take_region(self, *, last: bool, cut: bool) -> bool:
        text = self._held
        for tag, close in TAGS.items():
            if text.startswith(tag):
                return self._tagged(text, tag, close, last=last, cut=cut)
        if text.startswith(LISTED):
            return self._listed(text, last=last, cut=cut)
        if text.startswith(CODED):
            return last and self._coded(text, cut=cut)
        begin = text.lstrip(" \t")
        if not last and begin and LISTED.startswith(begin):
            return False
        if self._at_line_start and FENCE.startswith(begin[:3]) and begin:
            return self._fenced(text, begin, last=last, cut=cut)
        if self._at_line_start and begin[:1] in ("{", "[") and not self._in_block:
            return self._bare(text, begin, last=last, cut=cut)
        if not last:
            return False
        self._take_text(len(text))
        return True

    def _tagged(self, text: str, tag: str, close: str, *, last: bool, cut: bool) -> bool:
        """Up to the closing tag, which some models forget before the next call or the end."""
        ends = [at for mark in (close, tag) if (at := self._find(text, mark, len(tag))) >= 0]
        if not ends and not last:
            return False
        if not ends and cut:
            return self._as_text(len(text))
        end = min(ends, default=len(text))
        body, rest = text[len(tag) : end], text[end:].removeprefix(close)
        calls = calls_in(body, tagged=True)
        if not calls:
            # Some close the JSON and talk on inside the tag; what stands before the talk is still a call.
            value = body.lstrip()
            cut_at = end_of_json(value) if value[:1] in ("{", "[") else None
            calls = calls_in(value[:cut_at], tagged=True) if cut_at else []
            if calls and cut_at and value[cut_at:].strip():
                rest = value[cut_at:] + rest
                self._marks = None
        return self._call(calls or [broken_call(body, self._tools)], rest)

    def _find(self, text: str, mark: str, start: int) -> int:
        """As ``str.find``; what was not in the held text is not looked for again."""
        at = -1 if mark in self._absent else text.find(mark, start)
        if at < 0:
            self._absent.add(mark)
        return at

    def _listed(self, text: str, *, last: bool, cut: bool) -> bool:
        """A JSON list, or a name and its arguments."""
        value, form = text[len(LISTED) :].lstrip(), "{}"
        if value[:1] not in ("{", "["):
            named = _LISTED_NAME.match(value[:LISTED_HEAD])
            if named is None:
                return False if not last and len(value) < LISTED_HEAD else self._as_text(len(LISTED))
            value, form = value[named.end() :], f'{{{{"name": "{named[1]}", "arguments": {{}}}}}}'
        end = end_of_json(value)
        if end is None and not last:
            self._unclosed = True
            return False
        if end is None and cut:
            return self._as_text(len(text))
        body = form.format(value[:end])
        return self._call(calls_in(body, tagged=True) or [broken_call(body, self._tools)], value[end:] if end else "")

    def _coded(self, text: str, *, cut: bool) -> bool:
        """JSON, or the code itself: it is the rest of the answer."""
        body = text[len(CODED) :].strip()
        if cut or not body:
            return self._as_text(len(text))
        calls = calls_in(body)
        if not calls and PYTHON in self._tools:
            calls = [new_call(PYTHON, {"code": body})]
        return self._call(calls, "") if calls else self._as_text(len(text))

    def _fenced(self, text: str, begin: str, *, last: bool, cut: bool) -> bool:
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
        """The line of a fence is text, and so is all up to the fence that closes it."""
        self._false_starts += 1
        if head.startswith(FENCE) and FENCE not in head[len(FENCE) :].lstrip("`"):
            self._in_block = not self._in_block
        self._take_text(len(text) - len(text.lstrip(" \t")) + len(head) + len(newline))
        return True

    def _bare(self, text: str, begin: str, *, last: bool, cut: bool) -> bool:
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
        """What looked like a call and is none."""
        self._take_text(size)
        return True

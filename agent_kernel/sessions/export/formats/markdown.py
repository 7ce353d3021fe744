"""Writes a session as Markdown for people to read: code is in fences, reasoning and tool calls are collapsed. The
output cannot be imported again. The functions have no side effects.

A text of a person or a model cannot change the page around it. Fences are longer than any fence in their content, an
open fence in a message is closed, and HTML is displayed as text, because a zero-width space follows each "<".
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence

from agent_kernel.core.files import File
from agent_kernel.core.messages import Media, Message, ToolCall
from agent_kernel.core.session import Item, Turn
from agent_kernel.core.session_tree import Transcript
from agent_kernel.core.wire.turn_end import describe_end
from agent_kernel.sessions.export.formats.call_titles import call_title, result_text, result_title
from agent_kernel.sessions.export.formats.openai_chat import data_url

SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg"}
_FENCE = re.compile(r"(`{3,}|~{3,})(.*)\Z")
_CLOSE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*\Z")
_UNCLEAR = re.compile(r"(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])+(?:`{3}|~{3})")
"""Matches a fence inside a list or a quotation. Markdown parsers disagree about where such a fence ends."""
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_SCHEME = re.compile(r"(\]\(|\]:)(\s*<?\s*)(?=(?:javascript|vbscript|data)\s*:)", re.IGNORECASE)
_INVISIBLE = "\u200b"


def write(transcript: Transcript, branch: str | None, *, beside: bool) -> tuple[str, dict[str, bytes]]:
    """Return (Markdown text, images by file name). With ``beside`` the images are files below ``images/``; otherwise
    they are data URLs in the text. If ``branch`` is given, only that branch is written. Otherwise the current branch is
    written completely, followed by each other branch without the items that are already written."""
    page = _MarkdownPage(transcript, beside)
    chosen = transcript.session.branch if branch is None else branch
    lines = [f"# {_inline(transcript.session.title or transcript.session.key.id)}", "", page.header_line(chosen)]
    lines += page.branch(chosen)
    if branch is None:
        for other in transcript.branches:
            if other.name != chosen:
                origin = f" (from {code_span(other.parent)}, item {other.since})" if other.parent else ""
                lines += ["", f"## Branch {code_span(other.name)}{origin}", *page.branch(other.name)]
    lines += page.list_files()
    return "\n".join(lines).rstrip() + "\n", page.files


class _MarkdownPage:
    def __init__(self, transcript: Transcript, beside: bool) -> None:
        self.files: dict[str, bytes] = {}
        self._whole = transcript
        self._beside = beside
        self._turns: set[str] = set()
        self._items: set[int] = set()

    def header_line(self, branch: str) -> str:
        session = self._whole.session
        facts = [f"session {code_span(session.key.id)}", f"begun {_format_time(session.created)}"]
        if len(self._whole.branches) > 1:
            facts.append(f"branch {code_span(branch)} of {len(self._whole.branches)}")
        if session.tags:
            facts.append("tags " + ", ".join(map(code_span, session.tags)))
        return " · ".join(facts)

    def list_files(self) -> Iterator[str]:
        """Yield the Markdown lines of a list of the session's files, without their content."""
        if self._whole.files:
            yield from ("", "## Files", "", "This document does not contain them, only their names.", "")
        for file in self._whole.files:
            yield f"- {code_span(file.name)}, {file.message or f'{file.size} bytes'}"

    def branch(self, name: str) -> Iterator[str]:
        """Yield the Markdown lines of a branch, without items that are already written as part of another branch. Turns
        are numbered within the branch. If this branch leaves an earlier one in the middle of a turn, the rest of that
        turn is marked as continued."""
        turns, items = self._whole.select_branch(name)
        of_turn: dict[str, list[Item]] = {}
        for item in items:
            if item.seq not in self._items and not item.message.hidden:
                of_turn.setdefault(item.turn, []).append(item)
                self._items.add(item.seq)
        for number, turn in enumerate(turns, start=1):
            continued = turn.id in self._turns
            if not continued or turn.id in of_turn:
                self._turns.add(turn.id)
                yield from self._turn(f"{number}{', continued' if continued else ''}", turn, of_turn.get(turn.id, []))

    def _turn(self, number: str, turn: Turn, items: Sequence[Item]) -> Iterator[str]:
        facts = [_format_time(turn.opened), *([code_span(turn.model)] if turn.model else [])]
        if turn.state != "committed":
            facts.append(_inline(describe_end(turn.state, turn.reason)))
        yield from ("", f"### Turn {number}", "", " · ".join(facts))
        attached = [code_span(file.name) for file in self._whole.files if _is_attached(file, turn)]
        for item in items:
            yield from ("", *self._message(item.message))
            if attached and item.message.role == "user":
                yield from ("", f"Attached: {', '.join(attached)}")
                attached = []

    def _message(self, message: Message) -> Iterator[str]:
        match message.role:
            case "user":
                yield "**You**"
                yield ""
                yield from (f"> {line}".rstrip() for line in prose(message.text))
            case "tool":
                if text := result_text(message):
                    yield from _fold(result_title(message), _fence(text, ""))
            case "system":
                yield from _fold("Instructions", _fence(message.text, ""))
            case "assistant":
                if message.reasoning:
                    yield from (*_fold("Reasoning", _fence(message.reasoning, "")), "")
                yield from prose(message.text)
                if message.status == "interrupted":
                    yield from ("", "*(cut short)*")
        for call in message.calls:
            yield from ("", *_fold(call_title(call), _call(call)))
        for medium in message.media:
            yield from ("", self._medium(medium))

    def _medium(self, medium: Media) -> str:
        data, suffix = self._whole.blobs.get(medium.hash), SUFFIXES.get(medium.mime)
        if data is None or suffix is None:
            return f"*[{_inline(medium.mime)}, {medium.size} bytes]*"
        if not self._beside:
            return f"![image]({data_url(medium, data)})"
        name = f"images/{medium.hash[:16]}.{suffix}"
        self.files[name] = data
        return f"![image]({name})"


def _is_attached(file: File, turn: Turn) -> bool:
    """Return whether the user attached the file to the message of the turn. Ordinals of turns count from 1, and the
    turns of files from 0."""
    return file.purpose == "user_data" and file.turn + 1 == turn.ordinal


def _call(call: ToolCall) -> list[str]:
    """Return the Markdown lines of a call's arguments: a single argument ``code`` as Python code, anything else as
    JSON."""
    arguments: Mapping[str, object] = call.arguments
    code = arguments.get("code")
    if isinstance(code, str) and len(arguments) == 1:
        return _fence(code, "python")
    return _fence(json.dumps(dict(arguments), ensure_ascii=False, indent=1), "json")


def _fold(title: str, lines: Sequence[str]) -> list[str]:
    return [f"<details><summary>{_inline(title)}</summary>", "", *lines, "", "</details>"]


def _fence(text: str, language: str) -> list[str]:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return [fence + language, *_clean(text).split("\n"), fence]


def prose(text: str) -> Iterator[str]:
    """Yield the Markdown as written, with fences closed and with HTML and scripts made harmless, except within fences
    that every Markdown reader recognizes as code."""
    fence, certain = "", True
    for line in _clean(text).split("\n"):
        closes = _CLOSE.match(line)
        opens = _FENCE.match(line)
        if fence:
            yield line if certain else _harmless(line)
            if closes and closes[1].startswith(fence):
                fence = ""
            continue
        certain = certain and not _UNCLEAR.match(line)
        if opens and not (opens[1][0] == "`" and "`" in opens[2]):
            fence = opens[1]
        yield _harmless(line)
    if fence:
        yield fence


def _harmless(line: str) -> str:
    return _SCHEME.sub(rf"\1\2{_INVISIBLE}", _TAG.sub(f"<{_INVISIBLE}", line))


def _inline(text: str) -> str:
    words = " ".join(_clean(text).split())
    return re.sub(r"([\\`*_\[\]#|~])", r"\\\1", words.replace("&", "&amp;").replace("<", "&lt;"))


def code_span(text: str) -> str:
    words = " ".join(_clean(text).split())
    longest = max((len(run) for run in re.findall(r"`+", words)), default=0)
    marks = "`" * (longest + 1)
    return f"{marks} {words} {marks}" if longest else f"`{words}`"


def _clean(text: str) -> str:
    """Remove characters that UTF-8 cannot encode or that a terminal would interpret as control characters."""
    plain = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text.replace("\r\n", "\n").replace("\r", "\n"))
    return plain.encode("utf-8", "replace").decode()


def _format_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))

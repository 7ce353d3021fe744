"""Implements ``%agent search``, a full-text search in conversations. Each result shows the command that continues the
conversation."""

from __future__ import annotations

import html
import re
import urllib.parse
from collections.abc import Sequence
from typing import NamedTuple

from agent_kernel.notebook.display.render import BOX, QUIET, Bundle, json_bundle, line_bundle, moment, turn_count
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.magic.command_context import CommandContext, Json

HELP = (
    "WORDS: find conversations with any of these words; --here: in this session; --all: in all, after you agree; --json"
)
FLAGS = frozenset({"--here", "--all", "--json"})
ASKED = ("A notebook may search its own conversations only.", "Let this notebook search all of yours")
OWN = "Only conversations of this notebook were searched; %agent search --all WORDS searches all, after you agree."


def search(line: str, context: CommandContext) -> None:
    """Search, and display the result. With ``--all``, first wait until the user confirms the search in the browser."""
    query = SearchQuery.of(line)
    if "--all" in query.flags:
        context.await_confirmation(context.server.call("POST", "search/access", {}), *ASKED)
    context.publish(query.bundle(context.server.call("GET", query.path)))


class SearchQuery(NamedTuple):
    """The words and flags of an ``%agent search`` line. Every argument that is not a known flag is a word to search
    for, even if it looks like a flag."""

    words: tuple[str, ...]
    flags: frozenset[str]

    @classmethod
    def of(cls, line: str) -> SearchQuery:
        """Parse ``line``. Raises AgentError when it has no words to search for."""
        words = line.split()
        flags = FLAGS.intersection(words)
        search_words = tuple(word for word in words if word not in FLAGS)
        if not search_words:
            raise AgentError("the words to search for are missing: %agent search WORDS")
        return cls(search_words, flags)

    @property
    def path(self) -> str:
        where = {"here": "1"} if "--here" in self.flags else {}
        return f"search?{urllib.parse.urlencode({'q': ' '.join(self.words), **where})}"

    def bundle(self, answer: Json) -> Bundle:
        hits: Sequence[Json] = answer["hits"]
        if "--json" in self.flags:
            return json_bundle(hits)
        own = OWN if answer["searched"] == "own" and "--here" not in self.flags else ""
        if not hits:
            return line_bundle(f"Nothing was found. {own}".strip())
        plain = [part for hit in hits for part in ("", *_plain(hit))][1:]
        rich = [_rich(hit, self.words) for hit in hits]
        if own:
            plain += ["", own]
            rich.append(f"<div style='{QUIET}'>{html.escape(own)}</div>")
        return {"text/html": "".join(rich), "text/plain": "\n".join(plain)}


def _plain(hit: Json) -> list[str]:
    lines = [f"    {piece['role']}: {piece['text']}" for piece in hit["snippets"]]
    return [_heading(hit), *lines, f"    to continue it: {_use(hit)}"]


def _rich(hit: Json, words: Sequence[str]) -> str:
    lines = "".join(
        f"<div><span style='{QUIET}'>{html.escape(piece['role'])}</span> {_mark_words(piece['text'], words)}</div>"
        for piece in hit["snippets"]
    )
    use = f"<div style='{QUIET}'>to continue it: <code>{html.escape(_use(hit))}</code></div>"
    return f"<div style='{BOX}'><b>{html.escape(_heading(hit))}</b>{lines}{use}</div>"


def _heading(hit: Json) -> str:
    session = hit["session"]
    title = " ".join(str(session["title"]).split()) or "untitled"
    notebooks = f" · {', '.join(hit['notebooks'])}" if hit["notebooks"] else ""
    return f"{title} · {moment(session['updated'])} · {turn_count(session['turns'])}{notebooks}"


def _use(hit: Json) -> str:
    return f"%agent use {hit['session']['id']}"


def _mark_words(text: str, words: Sequence[str]) -> str:
    """Return ``text`` as HTML in which the words are highlighted, in upper or lower case. Matches that only Unicode
    case folding finds (ß for ss) are not highlighted."""
    pattern = re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)), re.IGNORECASE)
    marked, end = "", 0
    for match in pattern.finditer(text):
        marked += f"{html.escape(text[end : match.start()])}<mark>{html.escape(match[0])}</mark>"
        end = match.end()
    return marked + html.escape(text[end:])

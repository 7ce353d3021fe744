"""Reduces the output of code that nobody approved to text, pictures and plain tables, before the browser page of the
notebook displays it.

A trusted notebook runs scripts in its outputs with the user's own rights. A picture or a chart can be loaded from any
server, and its URL can contain whatever the code has read. So this module removes everything that runs or loads
something.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any

from agent_kernel.notebook.display.safe_markdown import safe_markdown

PICTURES = ("image/png", "image/jpeg", "image/gif")
KEPT_TAGS = {"table", "thead", "tbody", "tfoot", "tr", "th", "td", "caption", "div", "span", "p", "br", "hr", "pre"}
KEPT_TAGS |= {"code", "b", "i", "em", "strong", "small", "sub", "sup", "ul", "ol", "li", "h1", "h2", "h3", "h4"}
EMPTY_TAGS = {"br", "hr"}
DROPPED_WITH_CONTENT = {"script", "style", "svg", "math", "iframe", "object", "template", "noscript", "textarea"}
TAG = re.compile(r"<(?P<end>/?)(?P<name>[a-zA-Z][a-zA-Z0-9]*)(?P<attributes>(?:[\s/][^<>]*)?)>")
ATTRIBUTE = re.compile(
    r"(?<![\w-])(?:(?P<name>border|colspan|rowspan|class)=\"(?P<value>\d{1,4}|dataframe)\")(?![\w-])", re.IGNORECASE
)
LOWER_END = {name: re.compile(rf"</{name}[^<>]*>", re.IGNORECASE) for name in DROPPED_WITH_CONTENT}
MAX_DEEP = 100
MAX_HTML = 500_000
"""Limit of HTML characters; longer HTML is displayed as plain text."""
MAX_MARKDOWN = 50_000
INTERACTIVE = "[interactive output, which is not shown because nobody approved its code]"


def safe_bundle(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the harmless parts of a MIME bundle. Always contains ``text/plain``."""
    safe: dict[str, Any] = {mime: data[mime] for mime in PICTURES if isinstance(data.get(mime), str)}
    plain = data.get("text/plain")
    if isinstance(table := data.get("text/html"), str) and len(table) <= MAX_HTML and "<table" in table:
        safe["text/html"] = safe_html(table)
    if isinstance(written := data.get("text/markdown"), str) and len(written) <= MAX_MARKDOWN:
        safe["text/markdown"] = safe_markdown(written)
    return {**safe, "text/plain": plain if isinstance(plain, str) else INTERACTIVE}


def safe_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a MIME bundle reduced to the sizes of pictures."""
    sizes: dict[str, Any] = {}
    for mime in PICTURES:
        size = metadata.get(mime)
        if isinstance(size, Mapping):
            sizes[mime] = {name: size[name] for name in ("width", "height") if isinstance(size.get(name), int | float)}
    return sizes


def safe_html(text: str) -> str:
    """Reduce HTML to tables and text, without styles, links, pictures or scripts. Other tags are removed and their text
    is kept; anything that is not a well-formed tag is displayed as text. Runs in linear time for every input, whereas
    ``html.parser`` needs minutes for some."""
    parts: list[str] = []
    still_open: list[str] = []
    for kind, words in _tokens(text):
        if kind == "text":
            parts.append(html.escape(html.unescape(words)))
            continue
        tag = TAG.fullmatch(words)
        assert tag is not None
        name = tag["name"].lower()
        if name not in KEPT_TAGS:
            continue
        if not tag["end"]:
            parts.append(f"<{name}{''.join(_attributes(tag['attributes']))}>")
            still_open += [] if name in EMPTY_TAGS else [name]
        elif name in still_open[-MAX_DEEP:]:
            while (last := still_open.pop()) != name:
                parts.append(f"</{last}>")
            parts.append(f"</{name}>")
    return "".join(parts) + "".join(f"</{name}>" for name in reversed(still_open))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield tags and the text between them. Elements in DROPPED_WITH_CONTENT are skipped with their content, to the
    end of the text if they are not closed."""
    at = 0
    while at < len(text):
        begins = text.find("<", at)
        begins = len(text) if begins < 0 else begins
        if begins > at:
            yield "text", text[at:begins]
        at = begins
        if at == len(text):
            return
        tag = TAG.match(text, at)
        if text.startswith("<!--", at):
            end = text.find("-->", at)
            at = len(text) if end < 0 else end + 3
        elif tag is None:
            yield "text", "<"
            at += 1
        elif not tag["end"] and (name := tag["name"].lower()) in DROPPED_WITH_CONTENT:
            over = LOWER_END[name].search(text, tag.end())
            at = over.end() if over else len(text)
        else:
            yield "tag", tag[0]
            at = tag.end()


def _attributes(text: str) -> Iterator[str]:
    for match in ATTRIBUTE.finditer(text):
        yield f' {match["name"].lower()}="{match["value"]}"'

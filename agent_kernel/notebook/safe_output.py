"""What code that nobody approved may put on a person's page: text, pictures and plain tables.

A trusted notebook runs scripts of its outputs with the person's own rights, and a picture or a chart may be asked for
from any server, its address carrying whatever the code has read. So nothing is shown that runs or that fetches.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

from agent_kernel.notebook.markdown import safe_markdown

PICTURES = ("image/png", "image/jpeg", "image/gif")
KEPT_TAGS = {"table", "thead", "tbody", "tfoot", "tr", "th", "td", "caption", "div", "span", "p", "br", "hr", "pre"}
KEPT_TAGS |= {"code", "b", "i", "em", "strong", "small", "sub", "sup", "ul", "ol", "li", "h1", "h2", "h3", "h4"}
EMPTY_TAGS = {"br", "hr"}
DROPPED_WITH_CONTENT = {"script", "style", "svg", "math", "iframe", "object", "template", "noscript", "textarea"}
NUMBERS = {"border", "colspan", "rowspan"}
CLASSES = {"dataframe"}
MAX_HTML = 2_000_000
"""Characters; of longer HTML the text alone is shown."""
INTERACTIVE = "[interactive output, which is not shown from here]"


def safe_bundle(data: Mapping[str, Any]) -> dict[str, Any]:
    """Of a MIME bundle what is harmless, never empty; ``text/plain`` is always there."""
    kept: dict[str, Any] = {mime: data[mime] for mime in PICTURES if isinstance(data.get(mime), str)}
    plain = data.get("text/plain")
    if isinstance(table := data.get("text/html"), str) and len(table) <= MAX_HTML and "<table" in table:
        kept["text/html"] = safe_html(table)
    if isinstance(written := data.get("text/markdown"), str):
        kept["text/markdown"] = safe_markdown(written)
    return {**kept, "text/plain": plain if isinstance(plain, str) else INTERACTIVE}


def safe_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Only the size of pictures."""
    kept: dict[str, Any] = {}
    for mime in PICTURES:
        size = metadata.get(mime)
        if isinstance(size, Mapping):
            kept[mime] = {name: size[name] for name in ("width", "height") if isinstance(size.get(name), int | float)}
    return kept


def safe_html(text: str) -> str:
    """Tables and words; no style, no link, no picture, no script."""
    cleaner = _Cleaner()
    cleaner.feed(text)
    cleaner.close()
    return "".join(cleaner.parts) + "".join(f"</{tag}>" for tag in reversed(cleaner.open))


class _Cleaner(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.open: list[str] = []
        self._dropped: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in DROPPED_WITH_CONTENT:
            self._dropped.append(tag)
        if self._dropped or tag not in KEPT_TAGS:
            return
        self.parts.append(f"<{tag}{''.join(_attribute(name, value or '') for name, value in attrs)}>")
        if tag not in EMPTY_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in DROPPED_WITH_CONTENT:
            self.handle_starttag(tag, attrs)
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._dropped:
            if tag == self._dropped[-1]:
                self._dropped.pop()
        elif tag in self.open:
            while (last := self.open.pop()) != tag:
                self.parts.append(f"</{last}>")
            self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._dropped:
            self.parts.append(html.escape(data))


def _attribute(name: str, value: str) -> str:
    if name in NUMBERS and value.isdecimal() and len(value) < 5:
        return f' {name}="{value}"'
    if name == "class" and value in CLASSES:
        return f' {name}="{value}"'
    return ""

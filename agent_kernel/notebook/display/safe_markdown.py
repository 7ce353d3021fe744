"""Makes a model's Markdown harmless: no renderer produces raw HTML, a script link or a remote image from it.

JupyterLab sanitises what it renders, nbconvert does not. Renderers disagree in corner cases about which text is code.
So in a text with a suspicious construct, this module writes all code in the one form that every renderer recognizes:
fences at column 0 between blank lines, and code spans as ``<code>`` with everything in them escaped.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

SUSPICIOUS = re.compile(r"<|\]\(|\]:|!\[|\]\[")
FENCE = re.compile(
    r"^(?P<lead>[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?)"
    r"(?P<fence>`{3,}(?=[^`]*$)|~{3,})[ \t]*(?P<info>[^\s`]*)(?P<more>.*)$"
)
CODE_SPAN = re.compile(r"(?<![\\`])(?P<ticks>`+)(?!`)(?P<code>[^\n]*?[^`\n])(?P=ticks)(?!`)")
OPENER = re.compile(r"^(?P<lead>[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*)(?P<run>`{3,}(?=[^`\n]*$)|~{3,})", re.MULTILINE)
"""Matches a line that a renderer reads as the beginning of a fence. It is applied to text without code spans."""
MATH = re.compile(
    r"(?<![\\$])\$\$[^$`\n]+\$\$(?!\$)"
    r"|^[ ]{0,3}\$\$[ \t]*\n[^$`]+\n[ ]{0,3}\$\$[ \t]*$"
    r"|(?<![\\$])\$[^\s$`](?:[^$`\n]*[^\s$`\\])?\$(?![\d$])",
    re.MULTILINE,
)
ENVIRONMENT = re.compile(r"\\begin\{(?P<name>[^}]*)\}?")
AUTOLINK = re.compile(r"<(https?://[^\s<>()\[\]\\`]+)>")
LINK = re.compile(r"\]\((?=\s*(?P<target>[^)\s>]{0,200}))")
REFERENCE = re.compile(r"^(?P<label>[ \t>]*\[[^\]\n]+\]):(?=\s*(?P<target>[^\s>]{0,200}))", re.MULTILINE)
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
LONGEST_TARGET = 200
"""A link target without a recognised scheme is unsafe if it has at least this many characters and contains an entity or
a backslash, because it may hide a scheme on purpose."""
SAFE_SCHEMES = ("http:", "https:", "mailto:")
MEANT = re.compile(r"[^\w ,.=/'\"]")


def safe_markdown(text: str) -> str:
    """Return harmless Markdown that looks the same. May be called with the incomplete text of an answer that is still
    arriving: the result is harmless at every point."""
    if not SUSPICIOUS.search(text):
        return text
    return "\n".join(_prose(block) if block.fence is None else _code(block) for block in _blocks(text))


@dataclass(slots=True)
class MarkdownBlock:
    """A block of prose (``fence`` is None), or the lines inside a code fence. For a fence, ``indent`` is the
    indentation of its opening line and ``info`` the text after the opening characters."""

    fence: str | None = None
    info: str = ""
    indent: int = 0
    lines: list[str] = field(default_factory=list)

    def ends_at(self, match: re.Match[str]) -> bool:
        closes = self.fence is not None and match["fence"].startswith(self.fence)
        return closes and not match["lead"].strip() and not match["info"] and not match["more"].strip()


def _blocks(text: str) -> Iterator[MarkdownBlock]:
    block = MarkdownBlock()
    for line in text.split("\n"):
        match = FENCE.match(line)
        if match is None or (block.fence is not None and not block.ends_at(match)):
            block.lines.append(line)
            continue
        if block.fence is not None:
            yield block
            block = MarkdownBlock()
            continue
        if bullet := match["lead"].strip():
            block.lines.append(match["lead"][: match["lead"].index(bullet)] + bullet)
        if block.lines:
            yield block
        info = re.sub(r"[^\w+#.-]", "", match["info"])
        block = MarkdownBlock(match["fence"], info, len(match["lead"].expandtabs(4)))
    if block.fence is not None or block.lines:
        yield block


def _code(block: MarkdownBlock) -> str:
    code = "\n".join(_outdent(line, block.indent) for line in block.lines)
    return f"\n{code_block(code, block.info)}\n"


def code_block(text: str, info: str = "") -> str:
    """Return ``text`` as a fenced block of Markdown, with a fence longer than every run of backticks in the text."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"{ticks}{info}\n{text}\n{ticks}"


def _outdent(line: str, width: int) -> str:
    expanded = line.expandtabs(4) if line.startswith("\t") else line
    return expanded[min(width, len(expanded) - len(expanded.lstrip(" "))) :]


def _prose(block: MarkdownBlock) -> str:
    """Escape every construct of a block of prose whose end a renderer might search for in later lines. In nbconvert,
    for example, an open bracket can extend into a code fence."""
    text = "\n".join(_brackets_closed(line) for line in block.lines)
    parts: list[str] = []
    end = 0
    for match in CODE_SPAN.finditer(text):
        parts += [_sanitize_text(text[end : match.start()]), _code_span(match)]
        end = match.end()
    whole = "".join([*parts, _sanitize_text(text[end:])])
    return OPENER.sub(lambda match: match["lead"] + f"&#{ord(match['run'][0])};" * len(match["run"]), whole)


def _brackets_closed(line: str) -> str:
    end = line.rfind("]") + 1
    return line[:end] + line[end:].replace("[", "&#91;")


def _code_span(match: re.Match[str]) -> str:
    if not re.search(r"[<\[\]$\\]|&#91;", match["code"]):
        return match[0]
    code = match["code"].strip().replace("&#91;", "[")
    return f"<code>{MEANT.sub(lambda char: f'&#{ord(char[0])};', code)}</code>"


def _sanitize_text(text: str) -> str:
    parts: list[str] = []
    end = 0
    for match in MATH.finditer(text):
        parts += [_plain(text[end : match.start()]), _math(match[0])]
        end = match.end()
    text = "".join([*parts, _plain(text[end:])])
    text = LINK.sub(lambda match: match[0] if _is_safe(match["target"]) else "]&#40;", text)
    text = REFERENCE.sub(lambda match: match[0] if _is_safe(match["target"]) else f"{match['label']}&#58;", text)
    return re.sub(r"!(?=\[)", "", text)


def _math(text: str) -> str:
    begun = ENVIRONMENT.finditer(text)
    if not all(f"\\end{{{match['name']}}}" in text[match.end() :] for match in begun):
        return _plain(text)
    return text.replace("<", r"\lt ").replace("\n", " ")


def _plain(text: str) -> str:
    text = text.replace("$$", "&#36;&#36;").replace("\\begin", "&#92;begin")
    text = AUTOLINK.sub(r"[\1](\1)", text).replace("\\<", "<")
    if "<" not in text:
        return text
    # The dollar signs are escaped, because a renderer that treats them as math would display ``&lt;`` literally.
    return re.sub(r"(?<!\\)\$", r"\$", text).replace("<", "&lt;")


def _is_safe(target: str) -> bool:
    """Return True for link targets that are relative, or whose scheme only opens a web page. Entities and backslashes
    are decoded first, so they cannot hide another scheme."""
    plain = re.sub(r"[\x00-\x20\\]|&lt;", "", html.unescape(html.unescape(target.replace("&lt;", ""))))
    scheme = SCHEME.match(plain)
    return (
        scheme[0].lower() in SAFE_SCHEMES if scheme else len(target) < LONGEST_TARGET or not re.search(r"[&\\]", target)
    )

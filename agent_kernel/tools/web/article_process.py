"""The text of HTML pages, as a program: frames come on standard input, and go out on standard output.

    python -P -E article.py

A frame is its length (4 bytes, big-endian) and JSON. A request ``{url, charset, size}`` is followed by ``size`` bytes
of HTML, an answer is ``{title, text}`` or ``{problem}``; the first answer, before any request, is ``{}`` or
``{missing}``. A process of its own with limits, since parsers meet pages that somebody made to break them. Standard
library only, and the one library that finds the article.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any, BinaryIO

if sys.platform != "win32":
    import resource

MEMORY = 2 << 30
ALONE_S = 30
"""Maximum time for one page, in case no parent is left to end the process."""
MAX_TAGS = 50_000
"""For a page with more tags only the plain text is taken, because finding the article would take too long."""


def main() -> int:
    _limit()
    try:
        import trafilatura  # noqa: F401
    except ImportError as error:
        _write({"missing": error.name or str(error)})
        return 4
    _write({})
    while (request := _read(sys.stdin.buffer)) is not None:
        html = sys.stdin.buffer.read(request["size"])
        if sys.platform != "win32":
            signal.alarm(ALONE_S)
        try:
            _write(article(html, request["charset"], request["url"]))
        except Exception as error:  # noqa: BLE001  whatever a parser meets is wrong with the page
            _write({"problem": type(error).__name__})
        if sys.platform != "win32":
            signal.alarm(0)
    return 0


def article(html: bytes, charset: str, url: str) -> dict[str, str]:
    """Extract the article. The library detects the charset if the server declares none."""
    import trafilatura

    decoded = _decode(html, charset)
    tree = trafilatura.load_html(decoded if charset else html)
    if tree is None:  # a piece of a page
        tree = trafilatura.load_html(f"<html><body>{decoded}</body></html>")
    if tree is None:
        return {"title": "", "text": ""}
    title = " ".join((tree.findtext(".//title") or "").split())
    text = None
    if html.count(b"<") <= MAX_TAGS:
        text = trafilatura.extract(tree, url=url, output_format="markdown", include_comments=False)
    return {"title": title, "text": (text or trafilatura.html2txt(tree)).strip()}


def _decode(html: bytes, charset: str) -> str:
    try:
        return html.decode(charset or "utf-8", "replace")
    except LookupError:
        return html.decode("utf-8", "replace")


def _read(source: BinaryIO) -> Any:
    """Read a frame; None at the end of the input."""
    length = source.read(4)
    return json.loads(source.read(int.from_bytes(length, "big"))) if len(length) == 4 else None


def _write(answer: dict[str, str]) -> None:
    body = json.dumps(answer).encode()
    sys.stdout.buffer.write(len(body).to_bytes(4, "big") + body)
    sys.stdout.buffer.flush()


def _limit() -> None:
    if sys.platform != "win32":
        for which, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(which, (most, most))


if __name__ == "__main__":
    sys.exit(main())

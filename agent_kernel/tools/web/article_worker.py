"""A program that extracts the text of HTML pages: it reads frames from standard input and writes frames to standard
output.

A request is two frames: the JSON object ``{url, charset}`` and the HTML. An answer is one frame, ``{title, text}`` or
``{problem}``. Before any request, the program writes ``{}``, or ``{missing}`` with the name of a library that is not
installed. It runs as a separate process with limits, because somebody may have written a page that exploits a parser.
It uses only the standard library and the library that finds the article.
"""

from __future__ import annotations

import io
import json
import signal
import sys

from agent_kernel.core.wire.framing import encode_frame, read_body

if sys.platform != "win32":
    import resource

MEMORY = 2 << 30
MAX_REQUEST = 64 << 20
ALONE_S = 30
"""Maximum seconds for one page. Needed if the parent, which otherwise ends a slow process, no longer exists."""
MAX_TAGS = 50_000
"""Maximum number of tags of a page in which the article is searched. For a page with more tags the search would take
too long, so the plain text is taken."""


def main() -> int:
    _limit()
    try:
        import trafilatura  # noqa: F401
    except ImportError as error:
        _write({"missing": error.name or str(error)})
        return 4
    _write({})
    source = io.FileIO(0, closefd=False)  # standard input is read without a buffer
    while (request := _read(source)) is not None and (html := _read(source)) is not None:
        page = json.loads(request)
        if sys.platform != "win32":
            signal.alarm(ALONE_S)
        try:
            _write(article(bytes(html), page["charset"], page["url"]))
        except Exception as error:  # noqa: BLE001  a parser may raise anything for a broken page
            _write({"problem": type(error).__name__})
        if sys.platform != "win32":
            signal.alarm(0)
    return 0


def article(html: bytes, charset: str, url: str) -> dict[str, str]:
    """Return the title and the text of the article in an HTML page. The library detects the charset if the server
    declares none."""
    import trafilatura

    decoded = _decode(html, charset)
    tree = trafilatura.load_html(decoded if charset else html)
    if tree is None:  # the HTML is only a fragment of a page
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


def _read(source: io.FileIO) -> bytearray | None:
    return read_body(source.readinto, MAX_REQUEST)


def _write(answer: dict[str, str]) -> None:
    sys.stdout.buffer.write(encode_frame(json.dumps(answer).encode()))
    sys.stdout.buffer.flush()


def _limit() -> None:
    if sys.platform != "win32":
        for which, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(which, (most, most))

"""What a fetched page says, as text: the article without its surroundings, tables and lists as Markdown."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass

from agent_kernel.errors import FetchFailed
from agent_kernel.net.fetch import Fetched
from agent_kernel.threads import in_own_thread

READ_S = 10.0
AT_ONCE = 2
MAX_TAGS = 50_000
"""Of a page with more only the words are taken: to find the article takes too long."""
TYPES = ("text/", "application/xhtml+xml", "application/xml", "application/json", "application/ld+json")
"""Beginnings of the content types that are text; a page without one is refused."""
HTML = ("text/html", "application/xhtml+xml")
MISSING = "Pages can not be read here: install agent-kernel[web] where the server runs."


@dataclass(frozen=True, slots=True)
class Readable:
    url: str
    title: str
    text: str


class Reader:
    """At most AT_ONCE pages are read at a time, each in a thread. What a hostile page makes take too long is given up;
    its thread goes on and keeps its place, so that no number of such pages takes more of the server."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)

    async def read(self, page: Fetched) -> Readable:
        """Raises FetchFailed."""
        loop = asyncio.get_running_loop()

        def read() -> Readable:
            try:
                return _read(page)
            finally:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for a place any more
                    loop.call_soon_threadsafe(self._places.release)

        try:
            async with asyncio.timeout(READ_S):
                await self._places.acquire()
                return await in_own_thread(read, "a page of the web")
        except TimeoutError:
            raise FetchFailed(f"{page.url[:200]} could not be read within {READ_S:g} s.") from None


def _read(page: Fetched) -> Readable:
    if page.mime in HTML:
        return _article(page)
    text = _indented(page.text) if "json" in page.mime else page.text
    return Readable(page.url, "", text.strip())


def _article(page: Fetched) -> Readable:
    """The library finds the charset by itself where the server names none."""
    try:
        import trafilatura
    except ImportError:
        raise FetchFailed(MISSING) from None

    tree = trafilatura.load_html(page.text if page.charset else page.data)
    if tree is None:  # a piece of a page
        tree = trafilatura.load_html(f"<html><body>{page.text}</body></html>")
    if tree is None:
        return Readable(page.url, "", "")
    title = " ".join((tree.findtext(".//title") or "").split())
    text = None
    if page.data.count(b"<") <= MAX_TAGS:
        text = trafilatura.extract(tree, url=page.url, output_format="markdown", include_comments=False)
    return Readable(page.url, title, (text or trafilatura.html2txt(tree)).strip())


def _indented(text: str) -> str:
    """Lines to cut at."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=1)
    except (ValueError, RecursionError):
        return text

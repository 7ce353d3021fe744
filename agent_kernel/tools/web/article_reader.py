"""Extracts the text of a fetched page: the article without navigation, with tables and lists as Markdown."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent_kernel.core.errors import FetchFailed, InvalidRequest
from agent_kernel.core.net.fetch import FetchResult
from agent_kernel.core.wire.framing import FrameError, encode_frame, parse_object, read_body_async
from agent_kernel.tools.files.document_text import Documents

READ_S = 10.0
START_S = 30.0
AT_ONCE = 2
IDLE_S = 60.0
PAGES = 500
"""Number of pages that a process reads before it is replaced, because parsers do not release memory."""
MAX_HTML = 4 << 20
MAX_ANSWER = 64 << 20
HTML = ("text/html", "application/xhtml+xml")
PDF = "application/pdf"
PDF_S = 30.0
TYPES = ("text/", "application/xhtml+xml", "application/xml", "application/json", "application/ld+json", PDF)
"""Prefixes of the content types that can be read. Pages of other types are refused."""
MISSING = "Pages cannot be read here: {library} is missing. Install agent-kernel[web] where the server runs."
PROGRAM = """
import sys
sys.path.append(sys.argv[1])
from agent_kernel.tools.web.article_worker import main
sys.exit(main())
"""
"""The program of a reader process. It is run with ``-P -E``, so that neither the working directory nor the environment
adds to the import path."""
PACKAGES = str(Path(__file__).absolute().parents[3])
KEPT = ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class ArticleText:
    url: str
    title: str
    text: str


class ArticleReader:
    """Reads HTML in at most AT_ONCE processes. They are started on demand and ended after IDLE_S seconds without use.
    If a page takes too long, its process is ended."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)
        self._idle: list[ArticleProcess] = []
        self._documents = Documents(PDF_S)
        self._rest: asyncio.TimerHandle | None = None

    async def read(self, page: FetchResult) -> ArticleText:
        """Return the text of a page. Raises FetchFailed."""
        if page.mime == PDF:
            return ArticleText(page.url, "", await self._pdf(page))
        if page.mime not in HTML:
            text = _indent(page.text) if "json" in page.mime else page.text
            return ArticleText(page.url, "", text.strip())
        async with self._places:
            worker = self._idle.pop() if self._idle else await ArticleProcess.start()
            try:
                answer = await worker.ask(page)
            except BaseException:  # also if the turn is cancelled: a busy process cannot be used again
                await worker.end()
                raise
            await self._keep(worker)
        if "problem" in answer:
            raise FetchFailed(f"{page.url[:200]} could not be read ({answer['problem']}).")
        return ArticleText(page.url, answer["title"], answer["text"])

    async def _pdf(self, page: FetchResult) -> str:
        try:
            return await self._documents.text("pdf", page.data, hashlib.sha256(page.data).hexdigest())
        except InvalidRequest as error:
            raise FetchFailed(str(error)) from None

    async def aclose(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        while self._idle:
            await self._idle.pop().end()

    async def _keep(self, worker: ArticleProcess) -> None:
        if worker.pages >= PAGES:
            await worker.end()
            return
        self._idle.append(worker)
        if self._rest is not None:
            self._rest.cancel()
        self._rest = asyncio.get_running_loop().call_later(IDLE_S, self._retire)

    def _retire(self) -> None:
        """Close the standard input of idle processes, so that they end by themselves."""
        for worker in self._idle:
            worker.dismiss()
        self._idle.clear()


class ArticleProcess:
    """The parent's handle of one process that runs ``article_worker.py``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pages = 0

    @classmethod
    async def start(cls) -> ArticleProcess:
        """Start the process. Raises FetchFailed if the library is not installed."""
        worker = cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-E", "-c", PROGRAM, PACKAGES),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd="/" if os.name == "posix" else None,
                env={name: os.environ[name] for name in KEPT if name in os.environ},
            )
        )
        try:
            async with asyncio.timeout(START_S):
                answer = await worker._answer()
        except BaseException as error:  # also if the turn is cancelled: nobody else ends the process
            await worker.end()
            if isinstance(error, (TimeoutError, asyncio.IncompleteReadError)):
                raise FetchFailed("The program that reads pages did not start.") from None
            raise
        if "missing" in answer:
            await worker.end()
            raise FetchFailed(MISSING.format(library=answer["missing"]))
        return worker

    async def ask(self, page: FetchResult) -> dict[str, str]:
        """Extract the text of one page. Raises FetchFailed if this takes too long, or exceeds the limits of the
        process."""
        self.pages += 1
        html = page.data[:MAX_HTML]
        request = json.dumps({"url": page.url, "charset": page.charset}).encode()
        try:
            async with asyncio.timeout(READ_S):
                assert self._process.stdin is not None
                self._process.stdin.write(encode_frame(request) + encode_frame(html))
                await self._process.stdin.drain()
                return await self._answer()
        except TimeoutError:
            raise FetchFailed(f"{page.url[:200]} could not be read within {READ_S:g} s.") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise FetchFailed(
                f"{page.url[:200]} could not be read: the program that reads pages hit a limit."
            ) from None

    async def _answer(self) -> dict[str, str]:
        assert self._process.stdout is not None
        try:
            return parse_object(await read_body_async(self._process.stdout, MAX_ANSWER))
        except FrameError:
            raise FetchFailed("The text of the page is larger than can be read.") from None

    def dismiss(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self.dismiss()
        await self._process.wait()


def _indent(text: str) -> str:
    """Return JSON text with line breaks and indentation, so that it can be split at line breaks. Return other text
    unchanged."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=1)
    except (ValueError, RecursionError):
        return text

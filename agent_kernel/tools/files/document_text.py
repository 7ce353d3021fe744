"""Extracts the text of documents in a separate process with limits, and caches it, because the model reads it in
slices."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.tools.files import document_worker
from agent_kernel.tools.files.document_worker import BROKEN, MAX_CHARS, MISSING, READERS

TIMEOUT_S = 90.0
REMEMBERED = 16_000_000
"""Maximum characters of all cached documents."""
MAX_BYTES = 128 << 20
FORMATS = frozenset(READERS)
PROGRAM = str(Path(document_worker.__file__).absolute())


class Documents:
    """Reads documents of the formats in ``FORMATS``; one reader process runs at a time."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._texts: OrderedDict[Hashable, str] = OrderedDict()
        self._one = asyncio.Lock()

    async def text(self, format: str, body: bytes | BinaryIO, key: Hashable, max_chars: int = MAX_CHARS) -> str:
        """Return the first ``max_chars`` characters of the text of a document. ``body`` is its bytes or an open file;
        ``key`` identifies the content in the cache.

        Raises InvalidRequest; its message states what is wrong with the document, or which library is missing.
        """
        key = (key, max_chars)
        if (cached := self._texts.get(key)) is not None:
            self._texts.move_to_end(key)
            return cached
        async with self._one:
            text = await self._read(format, body, max_chars)
        self._texts[key] = text
        while sum(map(len, self._texts.values())) > REMEMBERED and len(self._texts) > 1:
            self._texts.popitem(last=False)
        return text

    async def _read(self, format: str, body: bytes | BinaryIO, max_chars: int) -> str:
        with tempfile.TemporaryFile() as copy:
            source = cast(BinaryIO, copy)
            if isinstance(body, bytes):
                copy.write(body)
                copy.seek(0)
            else:
                source = body
                source.seek(0)
            if os.fstat(source.fileno()).st_size > MAX_BYTES:
                raise InvalidRequest(f"A {format} of more than {MAX_BYTES >> 20} MiB is not read.")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", PROGRAM, format, str(max_chars)),
                stdin=source,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd="/" if os.name == "posix" else None,
                env={
                    name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ
                },
            )
        try:
            output, problem = await asyncio.wait_for(process.communicate(), self._timeout_s)
        except TimeoutError:
            raise InvalidRequest(f"This {format} took longer than {self._timeout_s:g} s to read.") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        self._check(format, process.returncode or 0, problem.decode("utf-8", "replace").rpartition("\n")[2])
        return output.decode("utf-8", "replace")

    def _check(self, format: str, code: int, problem: str) -> None:
        if code == MISSING:
            raise InvalidRequest(
                f"Reading {format} files needs {problem}, which is not installed here.",
                hint='pip install "agent-kernel[documents]"',
            )
        if code == BROKEN:
            raise InvalidRequest(f"This {format} cannot be read: {problem}.")
        if code:
            raise InvalidRequest(
                f"This {format} cannot be read: the program that reads it hit a limit and ended ({code})."
            )

"""Collects printed output without blocking the worker. Short output is passed on at once; of long output, the beginning
and the end are kept."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Callable

CHUNK = 65536


class BoundedOutput:
    """The text of one stream in bounded memory: the first and the last ``limit / 2`` characters, and the number of
    characters between them."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = ""
        self._tail = ""
        self.total = 0

    def add(self, text: str) -> str:
        """Add text that was printed. Returns the part of it to display at once, which is the part within the first
        ``limit / 2`` characters of the stream."""
        self.total += len(text)
        room = self._half - len(self._head)
        displayed = text[:room] if room > 0 else ""
        self._head += displayed
        self._tail += text[len(displayed) :]
        if len(self._tail) > 4 * self._half:
            self._tail = self._tail[-self._half :]
        return displayed

    def text(self) -> str:
        tail = self._tail[-self._half :] if self._half else ""
        cut = self.total - len(self._head) - len(tail)
        return self._head + (f"\n... {cut:,} characters left out ...\n" if cut else "") + tail


class Pipe:
    """The reading end of a worker's stdout or stderr. It is read only during a run. Between runs writers block, and
    their text belongs to the next run."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._open = True
        self._take: Callable[[str], object] = lambda text: None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._attached = False
        os.set_blocking(fd, False)

    def attach(self, take: Callable[[str], object]) -> None:
        self._take = take
        if self._open and not self._attached:
            self._attached = True
            asyncio.get_running_loop().add_reader(self._fd, self._readable)

    def pause(self) -> None:
        if self._attached:
            self._attached = False
            asyncio.get_running_loop().remove_reader(self._fd)

    def drain(self, max_bytes: int = 1 << 20) -> None:
        """Pass the text that can be read without waiting to the function given to ``attach``, and stop after about
        ``max_bytes`` bytes. After the worker has reported the end of the run, this is all that the run has written."""
        while self._open and max_bytes > 0:
            got = self._readable()
            if not got:
                return
            max_bytes -= got

    def close(self) -> None:
        self.pause()
        if self._open:
            self._open = False
            os.close(self._fd)

    def _readable(self) -> int:
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return 0
        if not data:
            self.close()
            return 0
        self._take(self._decoder.decode(data))
        return len(data)

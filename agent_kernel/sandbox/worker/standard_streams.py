"""Provides the standard input, output and error of jailed code, and restores them for every run. Standard
library only."""

from __future__ import annotations

import io
import os
import sys


class NoInput(io.TextIOBase):
    """Standard input of the jailed code, which raises an error because nobody can type an answer."""

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # always raises
        raise RuntimeError("input() is not available here: nobody can type an answer. Put the value into the code.")

    def read(self, size: int | None = -1, /) -> str:
        return self.readline()

    def close(self) -> None: ...


class Streams:
    """Standard output and error, which write to the file descriptors 1 and 2, so that output of C code and child
    processes is captured too.
    """

    def __init__(self) -> None:
        self._kept = {fd: os.dup(fd) for fd in (1, 2)}
        sys.stdin = NoInput()

    def renew(self) -> None:
        """Restore the streams, whatever the last run did to them."""
        for fd, copy in self._kept.items():
            os.dup2(copy, fd)
        sys.stdout, sys.stderr = _stream(1), _stream(2)

    def flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                continue


def _stream(fd: int) -> io.TextIOWrapper:
    raw = io.FileIO(fd, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw, 8192), "utf-8", "backslashreplace", line_buffering=True)

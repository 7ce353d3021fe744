"""A program on a pseudo-terminal, as a user uses it."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from fcntl import ioctl
from pathlib import Path

WIDTH = 60
WAIT_S = 60.0
BEGIN = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Takes the terminal as its own: Ctrl-C is a signal then."""
SEQUENCES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A Python module that reads lines after the prompt ``In [1]:``. Use it with ``with``."""

    def __init__(self, directory: Path, module: Sequence[str], environment: Mapping[str, str]) -> None:
        given = {**environment, "TERM": "xterm-256color"}
        plain = {name: value for name, value in given.items() if name not in ("NO_COLOR", "COLUMNS")}
        self._person, terminal = pty.openpty()
        ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", BEGIN, "-m", *module],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            cwd=directory,
            env=plain,
            start_new_session=True,
        )
        os.close(terminal)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may come in two pieces
        self._unread = ""
        self.shown = ""

    def __enter__(self) -> Terminal:
        self.until("In [1]:")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._person)

    def type(self, keys: str) -> None:
        os.write(self._person, keys.encode())

    def until(self, words: str) -> str:
        """Return the output up to this text, inclusive. Later output is kept for the next call."""
        end = time.monotonic() + WAIT_S
        wanted = re.compile(f"(?:{SEQUENCES.pattern})*".join(map(re.escape, words)))
        while (match := wanted.search(self._unread)) is None:
            ready, _, _ = select.select([self._person], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{words!r} did not come: {self._unread!r}"
            self._unread += self._decoder.decode(os.read(self._person, 65536))
        came, self._unread = self._unread[: match.end()], self._unread[match.end() :]
        self.shown += came
        return came

    def run(self, line: str) -> str:
        """Type a line and return the output until the next prompt."""
        self.type(f"{line}\n")
        self.until(line[-20:])
        return self.until("In [")

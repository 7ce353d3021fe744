"""A pseudo-terminal in which a test runs the command."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import termios
import time

TERMINAL = {"TERM": "xterm", "COLUMNS": "80", "PROMPT_TOOLKIT_NO_CPR": "1"}
SLOW_S = 60.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x08")


class Terminal:
    """A pseudo-terminal in which the command runs and a test types."""

    def __init__(self, *command: str, columns: int = 80, **env: str) -> None:
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (40, columns))
        self.process = subprocess.Popen(
            command,
            env=os.environ | TERMINAL | env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""
        self._read = 0

    def wait_for(self, text: str) -> None:
        """Wait until the text is shown, after the text of the previous call."""
        until = time.monotonic() + SLOW_S
        while (at := self.shown.find(text, self._read)) < 0:
            assert time.monotonic() < until, f"{text!r} is not in {self.shown[self._read :]!r}"
            if select.select([self._ours], [], [], 0.1)[0]:
                data = os.read(self._ours, 65536).decode("utf-8", "replace")
                self.shown += ESCAPES.sub("", data)
        self._read = at + len(text)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode("utf-8", "surrogateescape"))

    def end(self) -> int:
        self.type("\x04")
        return self.process.wait(SLOW_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)

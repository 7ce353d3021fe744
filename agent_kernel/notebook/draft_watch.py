"""Whether a draft still gets on: a copy of one thread hangs when it waits for one that was not copied."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from pathlib import Path

HANG_S = 10.0
FUTEX = {"x86_64": "202", "aarch64": "98"}
"""The system call in which locks wait. Sleeping, and waiting for a program, are others."""


class Watch:
    """Hanging is: no output and no processor time for HANG_S seconds, every thread waiting for a lock, and no program
    of its own running."""

    def __init__(self, pid: int, hang_s: float = HANG_S) -> None:
        self._pid = pid
        self._hang_s = hang_s
        self._since = time.monotonic()
        self._used = -1

    def alive(self) -> None:
        self._since = time.monotonic()

    def hangs(self) -> bool:
        used = self._processor_time()
        if used != self._used or not self._all_wait():
            self._used = used
            self.alive()
            return False
        return time.monotonic() - self._since >= self._hang_s

    def _processor_time(self) -> int:
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
            return int(words[11]) + int(words[12])
        return -1

    def _all_wait(self) -> bool:
        """False where it can not be known."""
        futex, tasks = FUTEX.get(platform.machine()), f"/proc/{self._pid}/task"
        try:
            calls = [Path(tasks, task, "syscall").read_text().split()[0] for task in os.listdir(tasks)]
            children = Path(tasks, str(self._pid), "children").read_text().split()
        except (OSError, IndexError):
            return False
        return bool(calls) and not children and all(call == futex for call in calls)

"""Whether a draft still gets on, and within bounds: a copy of one thread hangs when it waits for one that was not
copied."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import time
from pathlib import Path

HANG_S = 10.0
FUTEX = {"x86_64": "202", "aarch64": "98"}
"""The system call in which locks wait. Sleeping, and waiting for a program, are others."""


PROCESSES = 256
DISK_MB = 2048
DISK_RESERVE_MB = 512
MAX_LOOKED_AT = 20_000
"""Files of a draft's directory; more than that are too many."""


class Watch:
    """Hanging is: no output and no processor time for HANG_S seconds, every thread waiting for a lock, and no program
    of its own running."""

    def __init__(self, pid: int, directory: str) -> None:
        self._pid = pid
        self._directory = directory
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
        return time.monotonic() - self._since >= HANG_S

    def excess(self) -> str:
        """What there is too much of, in words that end a sentence. The process limit of a user holds by itself, but not
        for root."""
        if _in_group(self._pid) > PROCESSES:
            return f"it started more than {PROCESSES} processes"
        if _written(self._directory) > DISK_MB << 20:
            return f"it wrote more than {DISK_MB} MB"
        with contextlib.suppress(OSError):
            if shutil.disk_usage(self._directory).free < DISK_RESERVE_MB << 20:
                return "the disk is nearly full"
        return ""

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


def _in_group(group: int) -> int:
    """Processes of a process group."""
    found = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            words = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()
            found += words[2] == str(group)
    return found


def _written(directory: str) -> int:
    """Bytes of files; DISK_MB and more for too many of them."""
    size, waiting, left = 0, [directory], MAX_LOOKED_AT
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    return (DISK_MB + 1) << 20
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    size += entry.stat(follow_symlinks=False).st_size
    return size

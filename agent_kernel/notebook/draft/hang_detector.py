"""Whether a draft still gets on, and within bounds: a copy of one thread hangs when it waits for one that was not
copied."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import time
from collections.abc import Sequence
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
    of its own running. ``asleep`` is the fork that waits for the end of the call, and no such program."""

    def __init__(self, pid: int, group: int, directory: str, memory_mb: int) -> None:
        self._pid = pid
        self._group = group
        self._directory = directory
        self._memory_mb = memory_mb
        self.asleep = 0
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
        """What all processes of the draft have too much of together, in words that end a sentence. The process limit of
        a user holds by itself, but not for root."""
        pids = in_group(self._group)
        if len(pids) > PROCESSES:
            return f"it started more than {PROCESSES} processes"
        if _memory_mb(pids, self._memory_mb) > self._memory_mb:
            return f"its processes used more than {self._memory_mb} MB of memory together"
        return excess_of_disk(self._directory)

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
        programs = [child for child in children if child != str(self.asleep)]
        return bool(calls) and not programs and all(call == futex for call in calls)


def excess_of_disk(directory: str) -> str:
    """What there is too much of, in words that end a sentence."""
    if _written(directory) > DISK_MB << 20:
        return f"it wrote more than {DISK_MB} MB"
    with contextlib.suppress(OSError):
        if shutil.disk_usage(directory).free < DISK_RESERVE_MB << 20:
            return "the disk is nearly full"
    return ""


def parent_of(pid: int) -> int:
    """0 for a process that does not exist."""
    return _parent_and_group(pid)[0]


def in_group(group: int) -> list[int]:
    """The processes of a process group."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if _parent_and_group(pid)[1] == group]


def _parent_and_group(pid: int) -> tuple[int, int]:
    with contextlib.suppress(OSError, IndexError, ValueError):
        words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return int(words[1]), int(words[2])
    return 0, 0


def _memory_mb(pids: Sequence[int], most_mb: int) -> int:
    """Memory of the draft's processes that they do not share with this process, their kernel. A first look counts what
    is shared again for each of them, which is never too little and costs next to nothing; only where that is more than
    ``most_mb``, the exact figure is read, which takes the system some milliseconds for each gigabyte."""
    roughly = sum(_kib(f"/proc/{pid}/status", ("RssAnon:", "VmSwap:")) for pid in pids) >> 10
    if roughly <= most_mb:
        return roughly
    # What is shared counts in parts that add up to one, so that the pages of all of them together, less those that the
    # kernel has, are the draft's own.
    shares = [_kib(f"/proc/{pid}/smaps_rollup", ("Pss_Anon:", "SwapPss:")) for pid in (os.getpid(), *pids)]
    return max(0, sum(shares) - _kib("/proc/self/smaps_rollup", ("Anonymous:", "Swap:"))) >> 10


def _kib(path: str, names: tuple[str, ...]) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        lines = Path(path).read_text(errors="replace").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(names))
    return 0


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

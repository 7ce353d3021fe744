"""Detects a draft that hangs or exceeds its limits. A fork hangs when it waits for a thread that was not copied."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from agent_kernel.notebook.draft.fork_safety import read_kib

HANG_S = 10.0
FUTEX = {"x86_64": "202", "aarch64": "98"}
"""Number of the system call ``futex``, in which locks wait. Sleeping and waiting for a program use other system
calls."""
PROCESSES = 256
DISK_MB = 2048
DISK_RESERVE_MB = 512
MAX_LOOKED_AT = 20_000
"""Limit of files in the draft's directory that are counted. A directory with more files exceeds the disk limit."""


class HangDetector:
    """Watches the process of a draft. The process hangs if all of this holds for HANG_S seconds: it prints nothing,
    uses no CPU time, every thread waits for a lock, and no program that it started runs. ``asleep`` is the process id
    of the fallback (the sleeping copy of the draft from before the call), which does not count as such a program."""

    def __init__(self, pid: int, group: int, directory: str, memory_mb: int) -> None:
        self._pid = pid
        self._group = group
        self._directory = directory
        self._memory_mb = memory_mb
        self.asleep = 0
        self._since = time.monotonic()
        self._used = -1

    def note_activity(self) -> None:
        self._since = time.monotonic()

    def hangs(self) -> bool:
        used = self._processor_time()
        if used != self._used or not self._every_thread_waits():
            self._used = used
            self.note_activity()
            return False
        return time.monotonic() - self._since >= HANG_S

    def excess(self) -> str:
        """Return which limit all processes of the draft together exceed, as the end of a sentence, or "" if they
        exceed none. The number of processes is checked here, because the system's own limit does not apply to root."""
        pids = list_group_processes(self._group)
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

    def _every_thread_waits(self) -> bool:
        """Return True if every thread waits for a lock and no started program runs. Returns False if that cannot be
        read."""
        futex, tasks = FUTEX.get(platform.machine()), f"/proc/{self._pid}/task"
        try:
            calls = [Path(tasks, task, "syscall").read_text().split()[0] for task in os.listdir(tasks)]
            children = Path(tasks, str(self._pid), "children").read_text().split()
        except (OSError, IndexError):
            return False
        programs = [child for child in children if child != str(self.asleep)]
        return bool(calls) and not programs and all(call == futex for call in calls)


def excess_of_disk(directory: str) -> str:
    """Return why the draft uses too much disk space, as the end of a sentence, or ""."""
    if _disk_usage(directory) > DISK_MB << 20:
        return f"it wrote more than {DISK_MB} MB"
    with contextlib.suppress(OSError):
        if shutil.disk_usage(directory).free < DISK_RESERVE_MB << 20:
            return "the disk is nearly full"
    return ""


def parent_of(pid: int) -> int:
    """Return the parent's process id, or 0 if the process does not exist."""
    return _parent_and_group(pid)[0]


def list_group_processes(group: int) -> list[int]:
    """Return the processes of a process group."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if _parent_and_group(pid)[1] == group]


def _parent_and_group(pid: int) -> tuple[int, int]:
    with contextlib.suppress(OSError, IndexError, ValueError):
        words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return int(words[1]), int(words[2])
    return 0, 0


def _memory_mb(pids: Sequence[int], most_mb: int) -> int:
    """Return the memory of the draft's processes that they do not share with this process (the kernel). The first
    estimate counts shared memory once per process, so it is never too low, and is cheap. Only if it exceeds ``most_mb``
    the exact figure is read, which takes some milliseconds per gigabyte."""
    roughly = sum(read_kib(f"/proc/{pid}/status", "RssAnon:", "VmSwap:") for pid in pids) >> 10
    if roughly <= most_mb:
        return roughly
    # The proportional set size (PSS) divides each shared page among the processes that share it. The memory that only
    # the draft has is therefore the PSS of the kernel and the draft together, minus the kernel's own anonymous memory.
    shares = [read_kib(f"/proc/{pid}/smaps_rollup", "Pss_Anon:", "SwapPss:") for pid in (os.getpid(), *pids)]
    return max(0, sum(shares) - read_kib("/proc/self/smaps_rollup", "Anonymous:", "Swap:")) >> 10


def _disk_usage(directory: str) -> int:
    """Return the bytes of all files below the directory, or a number above DISK_MB megabytes if there are too many
    files to count."""
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

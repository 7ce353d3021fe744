"""Decides whether a process can be forked safely. A fork has only one thread, so code in it that waits for another
thread waits forever.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import threading
import types
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from agent_kernel.notebook.draft import jail

MAX_THREADS = 32
"""Limit of Python threads. Each may hold a lock that is never released in a fork."""
RESERVE_MB = 256
CGROUP = Path("/sys/fs/cgroup")
NEVER = ("tensorflow", "jax", "mpi4py.MPI", "ray._raylet", "pyspark")
"""Libraries that start threads when imported, or that would communicate with the same external processes from the
copy."""
OPENMP = re.compile(r"\S*/libgomp[^/\s]*\.so[^/\s]*")
OTHER_DEVICES = re.compile(r"/dev/(?!shm/|zero|mqueue)(\S+)")
SOFT = 1


def unsafe() -> str:
    """Return why the kernel must not be forked now, as the end of a sentence, or "". Inspects the loaded libraries and
    the threads of the process; in addition, it asks OpenMP to release its idle threads."""
    if reason := jail.missing():
        return reason
    if threading.current_thread() is not threading.main_thread():
        return "this is not the kernel's main thread"
    loaded = next((name for name in NEVER if name in sys.modules), "")
    if loaded:
        return f"your kernel has loaded {loaded.partition('.')[0]}, which does not work in a copy"
    return _device_problem() or _thread_problem() or memory_problem()


def _device_problem() -> str:
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and getattr(cuda, "_initialized", False):
        return "your kernel uses CUDA, which does not work in a copy"
    for line in _lines("/proc/self/maps"):
        words = line.split(None, 5)
        if len(words) > 5 and words[1].endswith("s") and (device := OTHER_DEVICES.match(words[5])):
            return f"your kernel uses the device {device[1]}"
    return ""


def _thread_problem() -> str:
    if not isinstance(os.fork, types.BuiltinFunctionType) or (sys.gettrace() is not None and "pydevd" in sys.modules):
        return "your kernel is being debugged"
    if threading.active_count() > MAX_THREADS:
        return f"your kernel runs {threading.active_count()} threads"
    if library := unsafe_pool(ThreadFacts.of(os.getpid())):
        return f"your kernel has used {library}, which does not work in a copy"
    return ""


class ThreadFacts(NamedTuple):
    """Describes the threads of a process: their names, and the paths of the GNU OpenMP libraries that the process has
    loaded. Both are empty for a process with one thread."""

    names: Sequence[str] = ()
    openmp: Sequence[str] = ()

    @classmethod
    def of(cls, pid: int) -> ThreadFacts:
        names = _thread_names(pid)
        if len(names) < 2:
            return cls()
        libraries = {match[0] for line in _lines(f"/proc/{pid}/maps") if (match := OPENMP.search(line))}
        return cls(names, sorted(libraries))


def unsafe_pool(threads: ThreadFacts) -> str:
    """Return the library whose threads make it unsafe to fork this process, or "" if there is none. ``threads`` are
    those of this process: a draft cannot read them itself in its jail."""
    # Polars that is only imported has no threads yet.
    if "polars" in sys.modules and any(name.startswith("polars-") for name in threads.names):
        return "polars"
    if getattr(sys.modules.get("numba.np.ufunc.parallel"), "_is_initialized", False):
        return "numba's threads"
    return _unsafe_openmp(threads.openmp)


def _unsafe_openmp(paths: Iterable[str]) -> str:
    """Ask the GNU OpenMP libraries at ``paths`` to release their idle threads, for which a fork would wait. OpenMP
    starts them again when needed. Returns "OpenMP" if a library cannot do this, else ""."""
    for path in paths:
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
            if not hasattr(library, "omp_pause_resource_all") or library.omp_pause_resource_all(SOFT) != 0:
                return "OpenMP"
    return ""


def memory_problem() -> str:
    """Return why there is too little memory for a fork, or "" if there is enough. A fork shares memory with the kernel
    until one of them writes to it."""
    used, free = read_kib("/proc/self/status", "VmRSS:"), read_kib("/proc/meminfo", "MemAvailable:")
    if (limit := _cgroup_free()) is not None:
        free = min(free, limit)
    if used and free < max(used // 4, RESERVE_MB << 10):
        return f"only {free >> 10} MB of memory are free and your kernel has {used >> 10} MB"
    return ""


def _cgroup_free() -> int | None:
    """Return the free memory of the control group in KiB; None if the group has no limit. Files that the system keeps
    in memory count as used, but the system gives their memory back."""
    with contextlib.suppress(OSError, ValueError):
        limit, used = (int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        lines = (CGROUP / "memory.stat").read_text().splitlines()
        reclaimable = next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
        return (limit - used + reclaimable) >> 10
    return None


def _thread_names(pid: int) -> list[str]:
    names = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                names.append(Path(f"/proc/{pid}/task/{task}/comm").read_text().strip())
    return names


def read_kib(path: str, *names: str) -> int:
    """Return the sum of the lines of a file in /proc that begin with one of ``names``, in KiB; 0 if it cannot be
    read."""
    with contextlib.suppress(IndexError, ValueError):
        return sum(int(line.split()[1]) for line in _lines(path) if line.startswith(names))
    return 0


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace").splitlines()
    return []

"""Sets the resource limits of the jailed process and its children. Memory is limited for each process separately. CPU
time is limited for each run instead (``sandbox/worker/cpu_limit.py``).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping

_MB = 1 << 20


def apply(limits: Mapping[str, int], *, others: int) -> str:
    """Set the limits and return a description of them. ``others`` is the number of processes and threads of the same
    user outside the jail; the process limit of the user counts them too. Raises OSError, ValueError."""
    values = {
        resource.RLIMIT_AS: limits["memory_mb"] * _MB,
        resource.RLIMIT_FSIZE: limits["file_mb"] * _MB,
        resource.RLIMIT_NOFILE: limits["fds"],
        resource.RLIMIT_NPROC: limits["procs"] + others,
        resource.RLIMIT_CORE: 0,
    }
    lower(values)
    return f"each process {limits['memory_mb']} MB, {limits['fds']} open files, files of {limits['file_mb']} MB"


def lower(limits: Mapping[int, int]) -> None:
    """Set the limits, by their ``RLIMIT_`` number. A process may only lower its hard limit, so a hard limit that is
    already lower stays. Raises OSError, ValueError."""
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (most, most))


def tasks_of(uid: int) -> int:
    """Return the number of threads that run as this user, or 0 where /proc does not show them."""
    total = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == uid:
                total += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return total

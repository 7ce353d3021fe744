"""Limits the CPU time of each run in a process that serves many runs. Runs inside the jail: standard library only.

``setrlimit`` counts the CPU time since the start of the process, so its soft limit is raised for every run. A timer
first raises an exception in the code. Code that ignores it is ended by the soft limit SPARE_S later. Code that removes
both limits is stopped by the limit of wall time.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import types
from collections.abc import Iterator

SPARE_S = 5
AGAIN_S = 1.0


class ProcessorTimeUsedUp(BaseException):
    """Raised when the CPU time is used up. Not an Exception, so that ``except Exception`` does not stop it."""


@contextlib.contextmanager
def limit_cpu(seconds: float) -> Iterator[None]:
    """Limit the CPU time that this process, with all threads, may use from now on; 0 means no limit. Each child process
    gets the same soft limit for its own time."""
    if seconds <= 0:
        yield
        return

    def used_up(number: int, frame: types.FrameType | None) -> None:
        raise ProcessorTimeUsedUp(f"Stopped: it used up its {seconds:g} s of processor time.")

    signal.signal(signal.SIGPROF, used_up)
    _move_limit(seconds + SPARE_S)
    signal.setitimer(signal.ITIMER_PROF, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        _move_limit(None)


def _move_limit(seconds: float | None) -> None:
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = hard if seconds is None else int(usage.ru_utime + usage.ru_stime + seconds) + 1
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    with contextlib.suppress(OSError, ValueError):  # the code may have lowered the hard limit, which then applies
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))

"""A limit of processor time for each run of a process that lives on. Inside the jail: standard library only.

``setrlimit`` counts over the whole life of a process, so its soft limit moves with every run. First a timer raises in
the code; code that does not hear it is ended by the soft limit, SPARE_S later. Code that takes the limits away from
itself has the wall clock against it.
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
    """Not an Exception: code that catches those is to end too."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Of this process with all its threads, from now on; 0 = no limit. Child processes start with the same soft limit,
    each for itself."""
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
    with contextlib.suppress(OSError, ValueError):  # code may have lowered the hard limit: that one holds then
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))

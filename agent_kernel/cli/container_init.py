"""The first process (PID 1) of a container. It runs the server as its child, forwards signals to it, and reaps orphaned
processes.

The server runs in a session of its own. Signals, including those of terminal keys, therefore reach only this process,
which forwards each of them once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def is_first_process() -> bool:
    return os.getpid() == 1


def run(work: Callable[[], int]) -> int:
    """Run ``work`` in a child and return its exit status, or 128 plus the number of the signal that killed it."""
    child = os.fork()
    if child == 0:
        os.setsid()
        for number in FORWARDED:
            signal.signal(number, signal.SIG_DFL)
        return work()

    def forward(number: int, frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in FORWARDED:
        signal.signal(number, forward)
    while True:
        ended, status = os.wait()
        if ended == child:
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)

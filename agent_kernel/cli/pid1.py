"""The first process of a container. It reaps orphans, which are reparented to it.

The server is its child, in a session of its own, so that signals, including those from terminal keys, reach the server
only through this process, and once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def am() -> bool:
    return os.getpid() == 1


def run(work: Callable[[], int]) -> int:
    """Run ``work`` in a child and return its exit status, or 128 plus the number of the signal that killed it."""
    child = os.fork()
    if child == 0:
        os.setsid()
        for number in HANDED_ON:
            signal.signal(number, signal.SIG_DFL)
        return work()

    def hand_on(number: int, frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in HANDED_ON:
        signal.signal(number, hand_on)
    while True:
        ended, status = os.wait()
        if ended == child:
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)

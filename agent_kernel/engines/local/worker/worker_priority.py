"""Lowers the CPU use of the worker while the user's own code runs, and restores it afterwards."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

TASKS = Path("/proc/self/task")


class WorkerPriority:
    """Lowers and restores the priority of this process. While it is lowered, all threads together use one core less
    than the process may use, but at least one. They also get the idle scheduling class, if this process is allowed to
    leave that class again. Settings that cannot be changed are left as they are."""

    def __init__(self) -> None:
        self._cores = frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset()
        self._threads = 0
        self._returns: bool | None = None
        self._busy = False

    def hold(self) -> None:
        """Apply the lowered priority again. Call this regularly, because libraries start new threads and bind them to
        cores."""
        if self._busy:
            self.give_way(True)

    def give_way(self, busy: bool) -> None:
        """Lower the priority if ``busy``, otherwise restore it. Repeated calls have no further effect."""
        self._busy = busy
        if not self._cores:
            return
        cores = sorted(self._cores)[: max(1, len(self._cores) - 1)] if busy else self._cores
        if self._returns is None:
            self._returns = _may_return()
        policy = os.SCHED_IDLE if busy else os.SCHED_OTHER
        for task in _tasks():
            with suppress(OSError):  # the thread has ended
                os.sched_setaffinity(task, cores)
                if self._returns:
                    os.sched_setscheduler(task, policy, os.sched_param(0))
        self._limit_torch(len(cores), busy)

    def _limit_torch(self, cores: int, busy: bool) -> None:
        """Reduce the number of torch's threads to ``cores`` if ``busy``, otherwise restore it: more threads than cores
        would slow each other down. Nothing happens unless the backend has imported torch."""
        torch = sys.modules.get("torch")
        if torch is None:
            return
        if busy and not self._threads:
            self._threads = torch.get_num_threads()
            torch.set_num_threads(max(1, min(cores, self._threads)))
        elif not busy and self._threads:
            torch.set_num_threads(self._threads)
            self._threads = 0


def _tasks() -> Iterable[int]:
    return [int(entry.name) for entry in TASKS.iterdir()]


def _may_return() -> bool:
    """Return whether a thread may leave the idle scheduling class, which needs a privilege on most systems. This
    function starts a short thread that tries it."""
    came_back = []

    def try_it() -> None:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            came_back.append(True)

    thread = threading.Thread(target=try_it, name="scheduler trial")
    thread.start()
    thread.join()
    return bool(came_back)

"""The keeper of a draft: the process between a kernel and its draft.

It is the parent of the process that runs code, and the system gives it that process's orphans. It reports to the kernel
how each process ended, and ends when the kernel ends. The keeper is also a copy of the kernel, but runs no code of the
model.
"""

from __future__ import annotations

import contextlib
import os
import signal
import warnings
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from agent_kernel.notebook.draft import framing as frames
from agent_kernel.sandbox.jail import privileges


class ChildEnds(NamedTuple):
    """File descriptors and state that the forked child gets.

    The child reads ``requests`` and writes ``results``. ``out`` and ``err`` receive output that does not pass through
    Python's streams. The keeper writes to ``reports``. A byte on ``wake`` wakes the ``child_process.Fallback``.
    ``directory`` is where the draft may write, ``parent`` the kernel's process id, and ``random`` the state of the
    kernel's random generator."""

    requests: int
    results: int
    out: int
    err: int
    reports: int
    wake: int
    directory: str
    parent: int
    random: object


class _Ending(BaseException):
    """Raised in the keeper by SIGTERM: the kernel ends the draft, or the kernel itself has ended."""


def prepare() -> None:
    """Configure this process before it forks the draft: SIGTERM ends the keeper and the draft, orphans become children
    of the keeper, and if memory runs out, the system kills the draft rather than the kernel. Raises OSError."""
    signal.signal(signal.SIGTERM, _end)
    privileges.adopt_orphans()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("600")


def keep(draft: int, ends: ChildEnds) -> None:
    """Report the start and end of every process of the draft until none is left or SIGTERM arrives."""
    try:
        lead(draft)
        close(ends.requests, ends.results, ends.wake, 1, 2)
        _report(ends, {"began": draft})
        while True:
            pid, status = os.waitpid(-1, 0)
            _report(ends, {"ended": pid, "status": status})
    except (_Ending, OSError):
        _end_all(draft)


def lead(pid: int) -> None:
    """Put ``pid`` into a process group of its own, in which everything it starts stays. Parent and child both call this
    function after a fork, so that the group exists no matter which of them runs first."""
    with contextlib.suppress(OSError):
        os.setpgid(pid, 0)


def fork() -> int:
    """Fork and return the child's process id, or 0 in the child. Suppresses Python's warning about threads. Raises
    OSError."""
    with warnings.catch_warnings():
        # Python warns that other threads are not copied. The hang detector finds code that waits for such a thread.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def close(*fds: int) -> None:
    """Close descriptors; already closed ones are ignored."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def _report(ends: ChildEnds, report: Mapping[str, int]) -> None:
    frames.write_all(ends.reports, frames.json_frame(frames.KEEPER, report))


def _end_all(group: int) -> None:
    """Kill the group and reap its processes, including orphans, until none is left."""
    with contextlib.suppress(ChildProcessError):
        while True:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
            os.waitpid(-1, 0)


def _end(number: int, frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Ending

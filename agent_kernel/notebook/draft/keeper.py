"""The keeper of a draft: the process between a kernel and its draft. It is the parent of the process that runs code,
and of whatever loses its parent there; it reports to the kernel how each of them ended, and ends with the kernel.

It is a copy of the kernel as well, and runs no code of the agent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from agent_kernel.notebook.draft import framing as frames
from agent_kernel.sandbox.jail import credentials


@dataclass(frozen=True, slots=True)
class Ends:
    """File descriptors of the child: requests come in, frames go out; ``out`` and ``err`` take what is written past
    Python; ``reports`` are the keeper's; a byte from ``wake`` puts the fork from before a call in the place of the
    process that ran it. ``directory`` is where the draft may write, ``parent`` the kernel."""

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
    """The kernel ends the draft, or has ended itself."""


def prepare() -> None:
    """Before the draft is forked: SIGTERM, from the kernel or on its end, ends all. When memory runs out, the system
    prefers to end a draft to the person's kernel. Raises OSError."""
    signal.signal(signal.SIGTERM, _end)
    credentials.adopt_orphans()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("600")


def keep(draft: int, ends: Ends) -> None:
    """Reports the end of every process of the draft, until none is left or the kernel wants none to be left."""
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
    """Makes a process group of ``pid``, in which all that it starts stays. Both sides of the fork do it, so that the
    group is there for whoever comes first."""
    with contextlib.suppress(OSError):
        os.setpgid(pid, 0)


def fork() -> int:
    """Raises OSError."""
    with warnings.catch_warnings():
        # Python warns of what is true: the other threads are not copied. What waits for them is watched for.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def close(*fds: int) -> None:
    """Harmless for those that are closed already."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def _report(ends: Ends, report: Mapping[str, int]) -> None:
    frames.write_all(ends.reports, frames.of_json(frames.KEEPER, report))


def _end_all(group: int) -> None:
    """Kills the group and buries it: a process whose parent ended comes here."""
    with contextlib.suppress(ChildProcessError):
        while True:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
            os.waitpid(-1, 0)


def _end(number: int, frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Ending

"""Measures from /proc how much memory and how many processes a session uses as a whole.

Runs in the supervisor between checks of its channels; standard library only. Where a control group limits a session,
these measurements are not needed. Elsewhere the supervisor uses them to limit the session, with a short delay.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

_CHEAP = ("RssAnon:", "RssShmem:", "VmSwap:")
_EXACT = ("Pss_Anon:", "Pss_Shmem:", "Swap:")


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """The resources that several processes use together. ``tasks`` counts processes and threads. ``memory_mb`` counts
    shared memory once for each process, so it is never too low."""

    pids: tuple[int, ...]
    tasks: int
    memory_mb: int


def measure_usage(root: int, *, everybody: bool) -> ResourceUsage:
    """Measure the descendants of ``root``. With ``everybody``, measure all processes that this /proc shows; in a
    process namespace these are the processes of the session."""
    pids = _visible_pids() if everybody else _descendants(root)
    tasks = kilobytes = 0
    for pid in pids:
        fields = _fields(f"/proc/{pid}/status", (*_CHEAP, "Threads:"))
        tasks += fields.get("Threads:", 1)
        kilobytes += sum(fields.get(name, 0) for name in _CHEAP)
    return ResourceUsage(tuple(pids), tasks, kilobytes >> 10)


def exact_mb(pids: Iterable[int]) -> int:
    """Return the memory of the processes in MB, with shared pages counted once. This takes longer than
    ``measure_usage``. Processes whose shared pages cannot be read are counted as ``measure_usage`` counts them."""
    kilobytes = 0
    for pid in pids:
        fields = _fields(f"/proc/{pid}/smaps_rollup", _EXACT)
        names: tuple[str, ...] = _EXACT if fields else _CHEAP
        fields = fields or _fields(f"/proc/{pid}/status", _CHEAP)
        kilobytes += sum(fields.get(name, 0) for name in names)
    return kilobytes >> 10


@contextmanager
def stopped_processes(pids: Iterable[int]) -> Iterator[None]:
    """Stop the processes while they are counted, so that none takes memory meanwhile: counting 25 processes that
    were filling their memory took 0.7 s. Processes that were stopped before stay stopped.

    Uses pidfds of /proc entries, because /proc may be that of a namespace with other process ids than this process
    sees."""
    stopped: list[int] = []
    try:
        for pid in pids:
            try:
                entry = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)
            except OSError:
                continue  # the process has ended
            stopped.append(entry)
            if _is_stopped(pid) or not _send_signal(entry, signal.SIGSTOP):
                os.close(stopped.pop())
        yield
    finally:
        for entry in stopped:
            _send_signal(entry, signal.SIGCONT)
            os.close(entry)


@dataclass(slots=True)
class UsageCheck:
    """The result of a check: ``too_much`` names the exceeded limit or is "", ``left_mb`` is the memory left until
    the limit."""

    too_much: str
    left_mb: int


def check_usage(used: ResourceUsage, limits: Mapping[str, int], counted: Mapping[str, str]) -> UsageCheck:
    """Check the usage against the limits. Layers in ``counted`` are not checked, because a control group enforces
    them."""
    most = limits["session_memory_mb"]
    memory_mb = used.memory_mb
    if "processes" not in counted and used.tasks > limits["procs"] + 8:
        return UsageCheck(f"it had more than {limits['procs']} processes and threads", 0)
    if "memory" not in counted and memory_mb > most:
        with stopped_processes(used.pids):
            memory_mb = exact_mb(used.pids)
        if memory_mb > most:
            return UsageCheck(f"its processes used more than {most} MB of memory together", 0)
    return UsageCheck("", most - memory_mb)


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] == b"T"
    except OSError:
        return False


def _send_signal(entry: int, number: int) -> bool:
    try:
        signal.pidfd_send_signal(entry, number)
    except OSError:
        return False  # the process has ended, or this kernel has no pidfd signals: it is then counted while it runs
    return True


def _visible_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []  # the file tree is being switched


def _descendants(root: int) -> list[int]:
    pids: list[int] = []
    waiting = [root]
    while waiting:
        children = children_of(waiting.pop())
        pids += children
        waiting += children
    return pids


def children_of(process: int | Literal["self"]) -> list[int]:
    """Return the ids of the children of a process, from all of its threads; empty if /proc does not show the process.
    If /proc may belong to another namespace, pass ``self`` for this process, because its id means another process
    there."""
    pids: list[int] = []
    with suppress(OSError):  # the process has ended
        for task in os.listdir(f"/proc/{process}/task"):
            with suppress(OSError), open(f"/proc/{process}/task/{task}/children") as file:
                pids += map(int, file.read().split())
    return pids


def _fields(path: str, names: tuple[str, ...]) -> dict[str, int]:
    values: dict[str, int] = {}
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(names):
                    name, value = line.split(maxsplit=2)[:2]
                    values[name] = int(value)
    except (OSError, ValueError):
        return {}
    return values

"""What the processes of one session use together, as /proc tells it.

Runs in the supervisor, between two looks at its channels: standard library only. Where a control group counts, this is
not needed; where there is none, it is how the memory and the processes of a whole session are bounded, some moments
late.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

_CHEAP = ("RssAnon:", "RssShmem:", "VmSwap:")
_EXACT = ("Pss_Anon:", "Pss_Shmem:", "Swap:")


@dataclass(frozen=True, slots=True)
class Usage:
    """``memory_mb`` counts what processes share for each of them: never too little."""

    pids: tuple[int, ...]
    tasks: int
    memory_mb: int


def usage(root: int, *, everybody: bool) -> Usage:
    """Of the descendants of ``root``, or of all that this /proc shows: that of a process namespace shows no other."""
    pids = _all() if everybody else _below(root)
    tasks = kilobytes = 0
    for pid in pids:
        fields = _fields(f"/proc/{pid}/status", (*_CHEAP, "Threads:"))
        tasks += fields.get("Threads:", 1)
        kilobytes += sum(fields.get(name, 0) for name in _CHEAP)
    return Usage(tuple(pids), tasks, kilobytes >> 10)


def exact_mb(pids: Iterable[int]) -> int:
    """Memory in which what is shared counts once; slower. What can not be read counts as it does in ``usage``."""
    kilobytes = 0
    for pid in pids:
        found = _fields(f"/proc/{pid}/smaps_rollup", _EXACT)
        names: tuple[str, ...] = _EXACT if found else _CHEAP
        found = found or _fields(f"/proc/{pid}/status", _CHEAP)
        kilobytes += sum(found.get(name, 0) for name in names)
    return kilobytes >> 10


@contextmanager
def standing_still(pids: Iterable[int]) -> Iterator[None]:
    """Nothing takes memory meanwhile, and nothing is in the way of counting it: of 25 processes that fill theirs, it
    took 0.7 s, in which they went on. Who stopped before stays so.

    By the entries of /proc, as it may be that of a namespace, in which the numbers are others than here."""
    stopped: list[int] = []
    try:
        for pid in pids:
            try:
                entry = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)
            except OSError:
                continue  # it ended meanwhile
            stopped.append(entry)
            if _is_stopped(pid) or not _signalled(entry, signal.SIGSTOP):
                os.close(stopped.pop())
        yield
    finally:
        for entry in stopped:
            _signalled(entry, signal.SIGCONT)
            os.close(entry)


@dataclass(slots=True)
class Look:
    """What was found: ``too_much`` in words, "" if nothing; ``left_mb`` until the limit of memory."""

    too_much: str
    left_mb: int


def look(used: Usage, limits: Mapping[str, int], counted: Mapping[str, str]) -> Look:
    """``counted``: layers that see to it themselves."""
    most = limits["session_memory_mb"]
    memory_mb = used.memory_mb
    if "processes" not in counted and used.tasks > limits["procs"] + 8:
        return Look(f"it had more than {limits['procs']} processes and threads", 0)
    if "memory" not in counted and memory_mb > most:
        with standing_still(used.pids):
            memory_mb = exact_mb(used.pids)
        if memory_mb > most:
            return Look(f"its processes used more than {most} MB of memory together", 0)
    return Look("", most - memory_mb)


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] == b"T"
    except OSError:
        return False


def _signalled(entry: int, number: int) -> bool:
    try:
        signal.pidfd_send_signal(entry, number)
    except OSError:
        return False  # it ended, or this kernel knows no such thing: then it is counted as it runs
    return True


def _all() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []  # the file tree is being switched


def _below(root: int) -> list[int]:
    found: list[int] = []
    waiting = [root]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    except OSError:
        return found  # it ended meanwhile
    return found


def _fields(path: str, names: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(names):
                    name, value = line.split(maxsplit=2)[:2]
                    found[name] = int(value)
    except (OSError, ValueError):
        return {}
    return found

"""What the processes of one session use together, as /proc tells it.

Runs in the supervisor, between two looks at its channels: standard library only. Where a control group counts, this is
not needed; where there is none, it is how the memory and the processes of a whole session are bounded, some moments
late.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
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


def over(used: Usage, limits: Mapping[str, int], counted: Mapping[str, str]) -> str:
    """What a session has too much of, in words; "" if nothing. ``counted``: layers that see to it themselves."""
    if "processes" not in counted and used.tasks > limits["procs"] + 8:
        return f"it had more than {limits['procs']} processes and threads"
    most = limits["session_memory_mb"]
    if "memory" not in counted and used.memory_mb > most and exact_mb(used.pids) > most:
        return f"its processes used more than {most} MB of memory together"
    return ""


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

"""Determines how much memory a process can still allocate, on this machine and in its control group, and which
processes use the most memory.

It works on Linux only. On other systems the memory is unknown and is not checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
GIB = 2**30
NO_LIMIT = 2**60
"""A limit of this size or larger means that there is none: control groups of version 1 then report a number near
2**63."""
RESERVE_SHARE = 0.1
KERNEL_FILE = re.compile(r"kernel-[\w-]+\.json")
HOLDERS = 3
HOLDER_MIN = 200 * 2**20


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of this machine in bytes. ``total`` is the memory of the machine, or the smallest limit of this
    process's control groups if that is lower. ``available`` is the memory that can be allocated without swapping, also
    within these limits: free memory and memory that the kernel can reclaim at once."""

    total: int
    available: int

    def reserve(self, setting_gb: float = 0.0) -> int:
        """Return the bytes to keep free for the user's programs: ``setting_gb`` if it is set, otherwise a tenth of the
        total memory, but at least 1 GiB."""
        return int(setting_gb * GIB) if setting_gb else max(GIB, int(self.total * RESERVE_SHARE))


@dataclass(frozen=True, slots=True)
class MemoryHolder:
    """A process of this user that uses much memory. ``size`` is in bytes; ``name`` is chosen so that the user
    recognises the process, such as the notebook of a kernel."""

    pid: int
    name: str
    size: int


def read_memory(proc: Path = PROC, groups: Path = GROUPS) -> Memory | None:
    """Return the memory of this machine, or None if the system does not report it."""
    try:
        facts = _pairs(proc / "meminfo")
        total, available = facts["MemTotal"] * 1024, facts["MemAvailable"] * 1024
    except (OSError, KeyError, ValueError):
        return None
    for limit, left in _limits(proc, groups):
        total, available = min(total, limit), min(available, max(0, left))
    return Memory(total, available)


def largest_processes(proc: Path = PROC, own: frozenset[int] = frozenset()) -> list[MemoryHolder]:
    """Return the few processes of this user that use the most memory, largest first. Processes whose ids are in ``own``
    are left out."""
    holders = []
    for entry in proc.iterdir():
        if entry.name.isdigit() and int(entry.name) not in own:
            with suppress(OSError, KeyError, ValueError):  # the process has just ended, or belongs to another user
                size = _pairs(entry / "status")["RssAnon"] * 1024
                if size >= HOLDER_MIN and entry.stat().st_uid == os.getuid():
                    holders.append(MemoryHolder(int(entry.name), _name(entry), size))
    return sorted(holders, key=lambda holder: holder.size, reverse=True)[:HOLDERS]


def resident_bytes(pid: int) -> int:
    """Return the bytes of anonymous memory of the process ``pid``, which are freed when it ends; 0 if unknown."""
    try:
        return _pairs(PROC / str(pid) / "status")["RssAnon"] * 1024
    except (OSError, KeyError, ValueError):
        return 0


def _limits(proc: Path, groups: Path) -> Iterator[tuple[int, int]]:
    """Yield (limit, bytes left below it) for every control group that contains this process and has a limit."""
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _group_limits(groups, path, "memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
                yield from _group_limits(groups / "memory", path, *names)


def _group_limits(root: Path, path: str, limit: str, usage: str, reclaimable: str) -> Iterator[tuple[int, int]]:
    """Yield (limit, bytes left below it) for the control group ``path`` and each of its parents up to ``root``; groups
    without a limit are left out. ``limit`` and ``usage`` are names of files in the folder of a group; ``reclaimable``
    is the name of an entry in its file ``memory.stat``. In a container, ``path`` may be a path of the host; only
    ``root`` then exists here."""
    below = path.strip("/")
    folder = root / below if below and ".." not in below.split("/") else root
    while folder.is_relative_to(root):
        with suppress(OSError, ValueError):  # a missing file means that this level has no limit
            most = int((folder / limit).read_text())
            if most < NO_LIMIT:
                used = int((folder / usage).read_text()) - _pairs(folder / "memory.stat").get(reclaimable, 0)
                yield most, most - used
        folder = folder.parent


def _pairs(path: Path) -> dict[str, int]:
    """Return the numbers in a file with lines ``name value`` or ``name: value unit``, by name. Other lines are
    ignored."""
    pairs = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.replace(":", " ", 1).partition(" ")
        value = rest.split()[:1]
        if value and value[0].isdigit():
            pairs[name] = int(value[0])
    return pairs


def _name(entry: Path) -> str:
    """Return a name for a process. For a kernel it is the name of its notebook, which Jupyter writes into the kernel's
    environment variables; for other processes it is their command."""
    command = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    if any(KERNEL_FILE.search(word) for word in command):
        variables = (entry / "environ").read_bytes().decode("utf-8", "replace").split("\0")
        notebook = next((word.partition("=")[2] for word in variables if word.startswith("JPY_SESSION_NAME=")), "")
        return f"the kernel of {Path(notebook).name}" if notebook else "a kernel"
    return f"{Path(command[0]).name or 'a program'} (process {entry.name})"

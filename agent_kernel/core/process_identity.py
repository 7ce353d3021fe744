"""Reads the properties that identify a process, so that another process can later determine whether it is still
running.

A pid alone is not enough. It is valid only in one pid namespace (in each container pids count from 1) and until the
machine reboots, and the system reuses it. A property that the system does not provide is an empty string; Windows
provides none of them.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

_GONE = {"Z", "X", "x"}
"""States in /proc/PID/stat of processes that have ended: a zombie (Z) only waits for its parent, and X and x mean
dead."""


def machine_id() -> str:
    """Return an id of this machine that survives a reboot. Images and clones may share it: see
    ``Owner.is_provably_dead``."""
    if os.name == "nt":
        return ""
    if Path("/proc/self").exists():
        return _read("/etc/machine-id") or _read("/var/lib/dbus/machine-id")
    return f"{os.uname().nodename}:{uuid.getnode():x}"


def boot_id() -> str:
    """Return the random id that the operating system gave to the current boot of this machine."""
    return _read("/proc/sys/kernel/random/boot_id")


def boot_time() -> float | None:
    """Return when this machine booted, in seconds since the epoch; None if the system does not say."""
    for line in _read("/proc/stat").splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return None


def pid_namespace() -> str:
    """Return the inode of the pid namespace of this process."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def start_time(pid: int) -> str:
    """Return when the process started, in clock ticks since boot. If the same pid later has another start time, it was
    reused."""
    return _stat(pid)[1]


def is_alive(pid: int, start: str) -> bool:
    """Return whether the process may still be running: False only if there certainly is no such process on this
    machine. ``start`` is its ``start_time``, or empty if that is unknown."""
    if os.name == "nt":
        return True  # on Windows, os.kill(pid, 0) sends Ctrl+C
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # it runs as another user, or its number is invalid on this system
    state, now_started = _stat(pid)
    return state not in _GONE and not (start and now_started and start != now_started)


def _stat(pid: int) -> tuple[str, str]:
    """Return fields 3 (state) and 22 (start time) of /proc/PID/stat (see proc(5)). The command name before them may
    contain parentheses."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], fields[19]) if len(fields) > 19 else ("", "")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""

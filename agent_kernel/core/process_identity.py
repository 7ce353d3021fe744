"""Facts that identify a process, so that another process can later determine whether it is still running.

A pid alone is not enough: it belongs to one pid namespace (containers that share a disk each count from 1) of one boot
of one machine, and it is reused. Facts that a system does not provide are empty strings; Windows provides none.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

_GONE = {"Z", "X", "x"}
"""States in /proc/PID/stat in which a process cannot write any more; a zombie only waits to be reaped."""


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
    """Return when this machine booted, in seconds since the epoch."""
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
    """Return when the process started, in clock ticks since boot; it reveals a reused pid."""
    return _stat(pid)[1]


def is_alive(pid: int, start: str) -> bool:
    """Return False only if no such process runs here now. ``start`` is its ``start_time``, or empty."""
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

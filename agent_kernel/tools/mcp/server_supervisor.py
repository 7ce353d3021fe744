"""Supervises an MCP server that agent-kernel started, so that none of its processes outlives agent-kernel.

Standard library only; run as a script: ``server_supervisor.py PARENT COMMAND ARGUMENT...``. Standard input and output
belong to the command. SIGTERM, or the death of the parent, ends the command and all its descendants, first with
SIGTERM, then with SIGKILL. On Linux orphans are reparented to this process; on other systems those that leave their
process group escape.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from types import FrameType

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
LINUX = sys.platform == "linux"
GRACE_S = 1.5
LOOK_S = 1.0
CANNOT_START = 127


class StopRequested(Exception):
    """The parent has sent SIGTERM to this supervisor, or has died."""


def main(parent: int, command: list[str]) -> int:
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    libc = ctypes.CDLL(None, use_errno=True) if LINUX else None
    if libc is not None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:
        return 1
    child = os.fork()
    if child == 0:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        else:
            os.setpgid(0, 0)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
            os._exit(CANNOT_START)
    _close_pipes()
    if libc is None:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    status = 0
    try:
        status = _await_command(child)
    except StopRequested:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _end_all(child)
    return status


def _stop(number: int, frame: FrameType | None) -> None:
    raise StopRequested


def _close_pipes() -> None:
    """Close this process's copies of the pipes, so that they end when the command ends."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def _watch(parent: int) -> None:
    """Poll for the parent's death, on systems that do not send a signal for it."""
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)


def _await_command(child: int) -> int:
    """Wait for the command, reaping orphans meanwhile, and return the command's exit code."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _end_all(child: int) -> None:
    until = time.monotonic() + GRACE_S
    _signal(child, signal.SIGTERM)
    while _reap_all() and time.monotonic() < until:
        time.sleep(0.02)
    while _reap_all():
        _signal(child, signal.SIGKILL)
        time.sleep(0.02)


def _reap_all() -> bool:
    """Reap all children that have ended. Return whether a child is still running."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def _signal(child: int, number: int) -> None:
    if not LINUX:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, number)
        return
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _descendants(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = [int(pid_text) for pid_text in file.read().split()]
    except OSError:
        return []
    return [*children, *(below for child in children for below in _descendants(child))]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))

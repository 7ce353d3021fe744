"""Creates namespaces, in which the jail has its own network, processes, IPC, host name and file tree.

Root creates them directly. Other users create them inside a user namespace, if the system allows that.
"""

from __future__ import annotations

import os
from pathlib import Path

from agent_kernel.sandbox.jail.raw_syscalls import check_result, libc

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000


def enter(*, as_user: bool) -> str:
    """Enter new namespaces and return a description of them. With ``as_user`` they are created inside a new user
    namespace. The next child process becomes process 1 of the new process namespace. Raises OSError if the system
    refuses."""
    assert libc is not None
    uid, gid = os.getuid(), os.getgid()
    flags = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET | (_NEWUSER if as_user else 0)
    check_result(int(libc.unshare(flags)), "unshare")
    if as_user:
        # Without "deny", an unprivileged process may not write gid_map.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    return "own network, processes, IPC, host name" + (", user" if as_user else "")

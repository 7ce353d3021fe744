"""Who the jailed process is: another user when we are root, no capabilities, and no way to gain any."""

from __future__ import annotations

import os
import struct

from agent_kernel.sandbox.jail.syscalls import prctl, syscall

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 4, 24, 38, 36
_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
FIRST_UID, UIDS = 60578, 128
"""60578..60705 are assigned to nobody (systemd's table of user ids, ``docs/UIDS-GIDS.md``)."""


def uid_of(digest: str) -> int:
    """The user a session's code runs as under root: always the same one, so that its files stay its own."""
    return FIRST_UID + int(digest[:8], 16) % UIDS


def become(uid: int) -> str:
    """Root gives itself up for good. Raises OSError."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # A changed uid makes the process non-dumpable, and then /proc/self belongs to root.
    prctl(_PR_SET_DUMPABLE, 1)
    return f"uid {uid}"


def drop_capabilities() -> str:
    """Raises OSError."""
    for capability in range(64):
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        except OSError:
            break
    prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    syscall("capset", struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), bytes(24))
    return "none left"


def no_new_privileges() -> str:
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    return "set-user-id programs gain nothing"


def die_with_parent(signal: int, parent: int = 0) -> None:
    """Cleared by the kernel when the uid changes: call it after ``become``. ``parent``: who it was when this process
    began, if that can be told; one that has ended meanwhile ends this one now."""
    prctl(_PR_SET_PDEATHSIG, signal)
    if parent and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Descendants whose parent ended become our children, so that none outlives us."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)

"""Restricts the credentials of a jailed process: another user if the server is root, no capabilities, and no way to
gain any."""

from __future__ import annotations

import os
import struct

from agent_kernel.sandbox.jail.raw_syscalls import prctl, syscall

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 4, 24, 38, 36
_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
FIRST_UID, UIDS = 60578, 128
"""The first user id for sandboxes, and the number of user ids. The range 60578..60705 is unassigned in systemd's table
of user ids (``docs/UIDS-GIDS.md``)."""


def uid_of(digest: str) -> int:
    """Return the user id under which a session's code runs if the server is root. The id of a session never changes, so
    that the session keeps access to its files."""
    return FIRST_UID + int(digest[:8], 16) % UIDS


def switch_user(uid: int) -> str:
    """Switch from root to ``uid`` permanently. Raises OSError."""
    # The groups are set before the user, because a process without uid 0 may not change its groups.
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # Changing the uid makes a process non-dumpable; /proc/self would then belong to root and could not be read.
    prctl(_PR_SET_DUMPABLE, 1)
    return f"uid {uid}"


def drop_capabilities() -> str:
    """Drop all capabilities, including the bounding and ambient sets. Raises OSError."""
    # The number of capabilities depends on the kernel version: the first invalid number ends the list.
    for capability in range(64):
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        except OSError:
            break
    prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    syscall("capset", struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), bytes(24))
    return "none left"


def no_new_privileges() -> str:
    """Set no_new_privs. Landlock and seccomp require it of unprivileged processes. Raises OSError."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    return "set-user-id programs gain nothing"


def die_with_parent(signal: int, parent: int = 0) -> None:
    """Ask the kernel to send ``signal`` to this process when its parent ends. A change of the uid clears this, so call
    it after ``switch_user``. ``parent`` is the expected parent if it is known; if that process has already ended, this
    process ends now."""
    prctl(_PR_SET_PDEATHSIG, signal)
    if parent and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent has ended, so that none outlives it."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)

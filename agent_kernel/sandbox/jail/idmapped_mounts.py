"""Folders of the person in which the session's own user may write: mounted so that what belongs to the person is the
session's inside, and what the session makes is the person's outside (idmapped mounts, Linux 5.12).

Only root needs it, whose sessions run as users of their own. Source: ``Documentation/filesystems/idmappings.rst``.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import NoReturn

from agent_kernel.sandbox.jail.syscalls import checked, libc, syscall

_NEWUSER = 0x10000000
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE, _CLOEXEC, _CLONE, _F_EMPTY_PATH = -100, 0x1000, 0x8000, 0o2000000, 1, 4
_ATTR_NOSUID, _ATTR_NODEV, _ATTR_IDMAP = 2, 4, 0x100000


def exchange(path: str, uid: int) -> int:
    """A user namespace, as a file descriptor, in which the owner of ``path`` is ``uid``; -1 where that is not possible.
    Starts a process for a moment: not after a new process namespace was asked for."""
    info = os.stat(path)
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        _hold(theirs)
    theirs.close()
    try:
        with ours:
            if not ours.recv(1):
                return -1
            Path(f"/proc/{child}/uid_map").write_text(f"{info.st_uid} {uid} 1")
            Path(f"/proc/{child}/gid_map").write_text(f"{info.st_gid} {uid} 1")
            return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    finally:
        os.waitpid(child, 0)


def _hold(channel: socket.socket) -> NoReturn:
    """Is in a user namespace until the other side closes."""
    try:
        assert libc is not None
        checked(int(libc.unshare(_NEWUSER)), "unshare")
        channel.send(b".")
        channel.recv(1)
    finally:
        os._exit(0)


def mount(source: str, target: str, namespace: int) -> None:
    """Raises OSError where the file system of ``source`` can not."""
    tree = syscall("open_tree", _AT_FDCWD, os.fsencode(source), _CLONE | _CLOEXEC | _AT_RECURSIVE)
    try:
        attributes = struct.pack("=QQQQ", _ATTR_IDMAP | _ATTR_NOSUID | _ATTR_NODEV, 0, 0, namespace)
        syscall("mount_setattr", tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, attributes, len(attributes))
        syscall("move_mount", tree, b"", _AT_FDCWD, os.fsencode(target), _F_EMPTY_PATH)
    finally:
        os.close(tree)

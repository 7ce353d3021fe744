"""Mounts a folder so that a sandbox that runs under another user id can write to it (idmapped mounts, Linux 5.12).

Inside the mount, the files of the folder's owner appear to belong to the sandbox's user id. Files that the sandbox
creates there belong to the folder's owner outside the mount. Only a server that runs as root needs this, because only
its sandboxes run under user ids of their own. Source: ``Documentation/filesystems/idmappings.rst``.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import NoReturn

from agent_kernel.sandbox.jail.raw_syscalls import check_result, libc, syscall

_NEWUSER = 0x10000000
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE, _CLOEXEC, _CLONE, _F_EMPTY_PATH = -100, 0x1000, 0x8000, 0o2000000, 1, 4
_ATTR_NOSUID, _ATTR_NODEV, _ATTR_IDMAP = 2, 4, 0x100000


def open_id_mapping(path: str, uid: int) -> int:
    """Return a file descriptor of a user namespace that maps the owner of ``path`` to ``uid``, or -1 if that is not
    possible. Forks for a moment, so it must be called before a new process namespace is requested."""
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
            # Mapping the id of another user needs privileges in the parent namespace, so this process writes the maps.
            Path(f"/proc/{child}/uid_map").write_text(f"{info.st_uid} {uid} 1")
            Path(f"/proc/{child}/gid_map").write_text(f"{info.st_gid} {uid} 1")
            return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    finally:
        os.waitpid(child, 0)


def _hold(channel: socket.socket) -> NoReturn:
    """Enter a new user namespace, and keep it alive until the parent process closes its end of ``channel``."""
    try:
        assert libc is not None
        check_result(int(libc.unshare(_NEWUSER)), "unshare")
        channel.send(b".")
        channel.recv(1)
    finally:
        os._exit(0)


def mount(source: str, target: str, namespace: int) -> None:
    """Mount ``source`` on ``target`` with the id mapping of ``namespace``, the descriptor of a user namespace. Raises
    OSError if the file system does not support it."""
    # A mount can only get an id mapping before it is attached, hence the detached clone.
    tree = syscall("open_tree", _AT_FDCWD, os.fsencode(source), _CLONE | _CLOEXEC | _AT_RECURSIVE)
    try:
        attributes = struct.pack("=QQQQ", _ATTR_IDMAP | _ATTR_NOSUID | _ATTR_NODEV, 0, 0, namespace)
        syscall("mount_setattr", tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, attributes, len(attributes))
        syscall("move_mount", tree, b"", _AT_FDCWD, os.fsencode(target), _F_EMPTY_PATH)
    finally:
        os.close(tree)

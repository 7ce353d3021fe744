"""Applies Landlock: the process permanently gives up access to files, TCP ports and outside processes. It keeps access
only to the paths that it names.

Source of the constants and of what each ABI version handles: the kernel's ``Documentation/userspace-api/landlock.rst``.
Landlock does not restrict chmod, utime, xattr, stat and connecting to unix sockets; mounts or seccomp restrict
these."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable

from agent_kernel.sandbox.jail.raw_syscalls import syscall

_RIGHTS = [
    "execute",
    "write_file",
    "read_file",
    "read_dir",
    "remove_dir",
    "remove_file",
    "make_char",
    "make_dir",
    "make_reg",
    "make_sock",
    "make_fifo",
    "make_block",
    "make_sym",
    "refer",
    "truncate",
    "ioctl_dev",
]
_BIT = {name: 1 << index for index, name in enumerate(_RIGHTS)}
_HANDLED_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}
READ = _BIT["execute"] | _BIT["read_file"] | _BIT["read_dir"]
_OF_FILES = _BIT["execute"] | _BIT["write_file"] | _BIT["read_file"] | _BIT["truncate"] | _BIT["ioctl_dev"]
_NOT_IN_WORK = _BIT["make_char"] | _BIT["make_block"]
_VERSION, _PATH_BENEATH = 1, 1
_TCP = 0b11
_SCOPES = 0b11


def abi() -> int:
    """Return the kernel's Landlock ABI version, or 0 without Landlock. Uses the system call, because
    /sys/kernel/security may be missing."""
    try:
        return syscall("landlock_create_ruleset", None, 0, _VERSION)
    except OSError:
        return 0


def restrict(readable: Iterable[str], writable: Iterable[str], *, tcp: bool = False, listed: Iterable[str] = ()) -> str:
    """Restrict this process permanently. It may read and execute the ``readable`` paths, and also write the
    ``writable`` paths, each with everything below. Directories in ``listed`` and below can only be listed. Missing
    paths are skipped.

    Without ``tcp``, TCP is denied (from ABI 4 on). Signals and abstract unix sockets cannot leave the jail (from ABI 6
    on). Requires no_new_privs. Returns a description of the restrictions in force. Raises OSError."""
    version = abi()
    if not version:
        raise OSError("this kernel has no Landlock (5.13 or later with CONFIG_SECURITY_LANDLOCK)")
    # The bits that an ABI version handles are consecutive; a newer kernel accepts all that we know.
    handled = (1 << _HANDLED_BY_ABI.get(version, 16)) - 1
    # The attribute structure grew with the ABI: files (8 bytes), network (16), scopes (24). A kernel rejects unknown
    # bytes.
    attributes = struct.pack("=QQQ", handled, 0 if tcp else _TCP, _SCOPES)[
        : 24 if version >= 6 else 16 if version >= 4 else 8
    ]
    ruleset = syscall("landlock_create_ruleset", attributes, len(attributes), 0)
    try:
        for path in readable:
            _allow(ruleset, path, READ & handled)
        for path in listed:
            _allow(ruleset, path, _BIT["read_dir"])
        for path in writable:
            # Code never needs to create device nodes.
            _allow(ruleset, path, handled & ~_NOT_IN_WORK)
        syscall("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)
    restricted = [f"ABI {version}: files", *(["TCP"] if version >= 4 and not tcp else [])]
    return ", ".join([*restricted, *(["signals"] if scopes_signals() else [])])


def scopes_signals() -> bool:
    """Return True if Landlock can keep a process from signalling processes outside its jail (from ABI 6 on)."""
    return abi() >= 6


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            # Landlock refuses directory rights for a path that is a file.
            access &= _OF_FILES
        syscall("landlock_add_rule", ruleset, _PATH_BENEATH, struct.pack("=Qi", access, beneath), 0)
    finally:
        os.close(beneath)

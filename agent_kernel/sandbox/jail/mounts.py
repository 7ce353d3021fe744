"""Builds the file tree of the jail: an empty tree into which only visible paths are mounted, read-only except for the
work directory.

Landlock later allows the same paths again. The mounts also restrict accesses that Landlock does not restrict: chmod,
file times, unix sockets, file names, and directories of which only some entries are visible."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from contextlib import suppress

from agent_kernel.sandbox.jail import idmapped_mounts
from agent_kernel.sandbox.jail.raw_syscalls import check_result, libc, syscall
from agent_kernel.sandbox.jail.visible_paths import VisibleEntry

_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE, _SLAVE, _SHARED = (
    2, 4, 8, 4096, 16384, 1 << 18, 1 << 19, 1 << 20,
)  # fmt: skip
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_AT_RECURSIVE = 0x8000
_DETACH = 2
_NEWNS = 0x20000
SOURCES = "/.sources"
"""Directory below which the supervisor mounts the directories of which the jail shows only some entries. The jailed
process cannot reach it."""


class FileTree:
    """The new file tree of the jail. It is built at ``/new`` while the old tree is mounted at ``/old``; ``switch``
    leaves the old tree permanently. The methods raise OSError if the system refuses a mount."""

    def __init__(self, scratch: str) -> None:
        """Create the mount points ``new`` and ``old`` in ``scratch``, an existing directory. A mount that only this
        mount namespace sees covers the directory, so its content outside the jail does not change."""
        # Make all mounts private, so that nothing below is propagated to the host.
        mount("", "/", "", _REC | _PRIVATE)
        mount("tmpfs", scratch, "tmpfs", _NOSUID | _NODEV, "size=16m,mode=755")
        for name in ("new", "old"):
            os.mkdir(f"{scratch}/{name}")
        syscall("pivot_root", os.fsencode(scratch), os.fsencode(f"{scratch}/old"))
        os.chdir("/")
        mount("tmpfs", "/new", "tmpfs", _NOSUID | _NODEV, "size=16m,mode=755")
        os.mkdir("/new" + SOURCES, 0o700)
        self._bound: set[str] = set()

    def show(self, path: str, *, write: bool = False, owners: int = -1) -> None:
        """Make a path and everything below it visible, read-only unless ``write``. A symbolic link stays a link to its
        target. ``owners`` is the descriptor of a user namespace that maps file owners (``idmapped_mounts``), or -1."""
        real = _resolve(path)
        if real is None:
            return
        if write or not self._is_covered(real):
            if not self._mount_mapped("/old" + real, "/new" + real, owners):
                _bind("/old" + real, "/new" + real, write=write)
            self._bound.add(real)
        self.link(path, real)

    def _mount_mapped(self, source: str, target: str, owners: int) -> bool:
        if owners < 0:
            return False
        _make_mount_point(source, target)
        try:
            idmapped_mounts.mount(source, target, owners)
        except OSError:
            return False  # this file system does not support id mapping: owners stay unchanged
        return True

    def link(self, path: str, real: str) -> None:
        """Recreate the symbolic link by which a visible path was requested."""
        if real != path and not os.path.lexists("/new" + path):
            os.makedirs(os.path.dirname("/new" + path), exist_ok=True)
            os.symlink(real, "/new" + path)

    def device(self, path: str) -> None:
        _bind("/old" + path, "/new" + path, write=True, device=True)

    def hide(self, paths: Iterable[str], *, but: str) -> None:
        """Cover every path of ``paths`` that lies inside a visible path. A directory is covered with an empty
        directory, a file with a file that cannot be opened. A covered directory that contains ``but`` stays writable,
        so that ``but`` can be mounted in it later."""
        for path in paths:
            if not self._is_covered(path) or os.path.islink("/new" + path):
                continue
            if os.path.isdir("/new" + path):
                mount("tmpfs", "/new" + path, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
                if not but.startswith(path + "/"):
                    _restrict("/new" + path, _ATTR_RDONLY, below=0)
            elif os.path.exists("/new" + path):
                _bind("/old/dev/null", "/new" + path, write=False)

    def temporary(self, path: str, size_mb: int) -> None:
        os.makedirs("/new" + path, exist_ok=True)
        mount("tmpfs", "/new" + path, "tmpfs", _NOSUID | _NODEV, f"size={size_mb}m,mode=1777")

    def proc(self) -> None:
        """Mount /proc from inside the process namespace, so that it shows the processes of the namespace only."""
        os.makedirs("/new/proc", exist_ok=True)
        mount("proc", "/new/proc", "proc", _NOSUID | _NODEV | _NOEXEC)

    def switch(self) -> None:
        """Make the new tree the root and detach the old tree."""
        assert libc is not None
        os.chdir("/new")
        # Stack the old tree on the same directory and unmount it there, see pivot_root(2), "pivot_root(".", ".")".
        syscall("pivot_root", b".", b".")
        check_result(int(libc.umount2(b".", _DETACH)), "umount the old tree")
        os.chdir("/")
        # The mounts are shared again, so that later mounts of the supervisor reach the worker's mount namespace, which
        # is a slave of this one.
        mount("", "/", "", _REC | _SHARED)

    def _is_covered(self, path: str) -> bool:
        return any(path == bound or path.startswith(bound + "/") for bound in self._bound)


def leave_sources() -> None:
    """Enter a mount namespace that follows the supervisor's but lacks the source directories. Otherwise the process
    could connect to a unix socket below them, which Landlock does not prevent. Called in the jailed process. Raises
    OSError."""
    assert libc is not None
    check_result(int(libc.unshare(_NEWNS)), "unshare mounts")
    mount("", "/", "", _REC | _SLAVE)
    for name in os.listdir(SOURCES):
        check_result(int(libc.umount2(os.fsencode(f"{SOURCES}/{name}"), _DETACH)), "umount sources")


class SharedDirectory:
    """A directory of which only some entries are visible. Each visible entry is mounted separately; ``update`` follows
    changes of the directory.

    In the jail, an empty directory takes its place. Only the supervisor, the process that sets up the
    jail, can create mount points in that directory."""

    def __init__(self, directory: str, number: int) -> None:
        self.directory = directory
        self.source = f"{SOURCES}/{number}"
        self._made = f"{SOURCES}/{number}.made"
        self._shown: dict[str, VisibleEntry] = {}
        _bind("/old" + directory, "/new" + self.source, write=False)
        os.mkdir("/new" + self._made)
        mount("tmpfs", "/new" + self._made, "tmpfs", _NOSUID | _NODEV, "size=16m,mode=755")
        _bind("/new" + self._made, "/new" + directory, write=True)

    def seal(self) -> None:
        """Make the empty directory read-only. After this, only the supervisor can create mount points in it."""
        _restrict("/new" + self.directory, _ATTR_RDONLY, below=0)

    def update(self, entries: Iterable[VisibleEntry], root: str = "") -> None:
        """Mount and unmount entries until exactly the entries in ``entries`` are visible. Their paths are those inside
        the jail. ``root`` is where the new tree is mounted at the moment. Raises OSError."""
        visible = {entry.path: entry for entry in entries}
        for path in sorted(self._shown, reverse=True):
            if visible.get(path) != self._shown[path]:
                self._remove(root, path)
        for path, entry in sorted(visible.items()):
            if path not in self._shown:
                inside = path.removeprefix(self.directory)
                try:
                    _make_mount_point(root + self.source + inside, root + self._made + inside)
                    mount(root + self.source + inside, root + path, "", _BIND | _REC)
                except FileNotFoundError:
                    continue  # the entry was removed after it was listed
                self._shown[path] = entry

    def _remove(self, root: str, path: str) -> None:
        assert libc is not None
        del self._shown[path]
        check_result(int(libc.umount2(os.fsencode(root + path), _DETACH)), f"umount {path}")
        place = root + self._made + path.removeprefix(self.directory)
        with suppress(OSError):  # a directory that contains other mount points stays
            os.rmdir(place) if os.path.isdir(place) else os.unlink(place)


def _resolve(path: str) -> str | None:
    """Resolve a path by the symbolic links of the old tree. Returns None if the target does not exist, or after 40
    links, the limit of the kernel."""
    current, rest, hops = "", path.strip("/").split("/"), 0
    while rest:
        part = rest.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            current = current.rpartition("/")[0]
            continue
        try:
            target = os.readlink(f"/old{current}/{part}")
        except FileNotFoundError:
            return None
        except OSError:
            current = f"{current}/{part}"
            continue
        hops += 1
        if hops > 40:
            return None
        current = "" if target.startswith("/") else current
        rest = target.strip("/").split("/") + rest
    return current


def _bind(source: str, target: str, *, write: bool, device: bool = False) -> None:
    """Bind-mount ``source``, then restrict the mount: the kernel ignores flags such as read-only in the bind call
    itself."""
    _make_mount_point(source, target)
    mount(source, target, "", _BIND | _REC)
    _restrict(target, (0 if write else _ATTR_RDONLY) | _ATTR_NOSUID | (0 if device else _ATTR_NODEV))


def _make_mount_point(source: str, target: str) -> None:
    """Create a directory at ``target`` if ``source`` is a directory, otherwise an empty file."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.stat(source)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


def _restrict(target: str, set_: int, *, below: int = _AT_RECURSIVE) -> None:
    """Set attributes of a mount, by default recursively. -100 is AT_FDCWD."""
    attributes = struct.pack("=QQQQ", set_, 0, 0, 0)
    syscall("mount_setattr", -100, os.fsencode(target), below, attributes, len(attributes))


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    assert libc is not None
    encoded = [os.fsencode(text) or None for text in (source, target, kind)]
    check_result(int(libc.mount(*encoded, ctypes.c_ulong(flags), os.fsencode(data) or None)), f"mount {target}")

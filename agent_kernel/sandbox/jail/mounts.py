"""The jail's file tree: an empty one into which only what may be seen is mounted, read-only but for the work directory.

The layers that follow (Landlock) allow the same paths again; this one also covers what Landlock does not: chmod, file
times, unix sockets, the names of files, and directories of which only some entries are visible.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from contextlib import suppress

from agent_kernel.sandbox.jail import idmapped_mounts
from agent_kernel.sandbox.jail.syscalls import checked, libc, syscall
from agent_kernel.sandbox.jail.visible_paths import Entry

_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE, _SLAVE, _SHARED = (
    2, 4, 8, 4096, 16384, 1 << 18, 1 << 19, 1 << 20,
)  # fmt: skip
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_AT_RECURSIVE = 0x8000
_DETACH = 2
_NEWNS = 0x20000
SOURCES = "/.sources"
"""Where the supervisor keeps whole directories of which entries are shown; out of reach for the jailed process."""


class FileTree:
    """Built while the old tree is still at hand under ``/old``; ``switch`` leaves it for good. Raises OSError."""

    def __init__(self, scratch: str) -> None:
        """``scratch``: a directory that exists, hidden for a moment in this mount namespace only."""
        _mount("", "/", "", _REC | _PRIVATE)
        _mount("tmpfs", scratch, "tmpfs", _NOSUID | _NODEV, "size=16m,mode=755")
        for name in ("new", "old"):
            os.mkdir(f"{scratch}/{name}")
        syscall("pivot_root", os.fsencode(scratch), os.fsencode(f"{scratch}/old"))
        os.chdir("/")
        _mount("tmpfs", "/new", "tmpfs", _NOSUID | _NODEV, "size=16m,mode=755")
        os.mkdir("/new" + SOURCES, 0o700)
        self._bound: set[str] = set()

    def show(self, path: str, *, write: bool = False, owners: int = -1) -> None:
        """The path and all below it; a link is shown as what it leads to, and as a link. ``owners``: a user namespace
        that says who owns what there (``ownership``)."""
        real = _resolved(path)
        if real is None:
            return
        if write or not self._covered(real):
            if not self._given("/old" + real, "/new" + real, owners):
                _bind("/old" + real, "/new" + real, write=write)
            self._bound.add(real)
        self.link(path, real)

    def _given(self, source: str, target: str, owners: int) -> bool:
        if owners < 0:
            return False
        _place(source, target)
        try:
            idmapped_mounts.mount(source, target, owners)
        except OSError:
            return False  # this file system can not: the owners stay as they are
        return True

    def link(self, path: str, real: str) -> None:
        """The name under which something shown was asked for, where that is a link."""
        if real != path and not os.path.lexists("/new" + path):
            os.makedirs(os.path.dirname("/new" + path), exist_ok=True)
            os.symlink(real, "/new" + path)

    def device(self, path: str) -> None:
        _bind("/old" + path, "/new" + path, write=True, device=True)

    def hide(self, paths: Iterable[str], *, but: str) -> None:
        """Covers what lies inside something shown: an empty directory, or a file that nobody can open. A directory
        above ``but`` can be added to still."""
        for path in paths:
            if not self._covered(path) or os.path.islink("/new" + path):
                continue
            if os.path.isdir("/new" + path):
                _mount("tmpfs", "/new" + path, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
                if not but.startswith(path + "/"):
                    _restrict("/new" + path, _ATTR_RDONLY, below=0)
            elif os.path.exists("/new" + path):
                _bind("/old/dev/null", "/new" + path, write=False)

    def temporary(self, path: str, size_mb: int) -> None:
        os.makedirs("/new" + path, exist_ok=True)
        _mount("tmpfs", "/new" + path, "tmpfs", _NOSUID | _NODEV, f"size={size_mb}m,mode=1777")

    def proc(self) -> None:
        """From inside the process namespace: shows its processes only."""
        os.makedirs("/new/proc", exist_ok=True)
        _mount("proc", "/new/proc", "proc", _NOSUID | _NODEV | _NOEXEC)

    def switch(self) -> None:
        assert libc is not None
        os.chdir("/new")
        # The old tree is stacked on the same place and then taken away: pivot_root(2), "pivot_root(".", ".")".
        syscall("pivot_root", b".", b".")
        checked(int(libc.umount2(b".", _DETACH)), "umount the old tree")
        os.chdir("/")
        _mount("", "/", "", _REC | _SHARED)

    def _covered(self, path: str) -> bool:
        return any(path == bound or path.startswith(bound + "/") for bound in self._bound)


def leave_sources() -> None:
    """For the jailed process: a mount namespace of its own that follows the supervisor's but has no sources. A unix
    socket below them could be connected to otherwise, which Landlock does not prevent. Raises OSError."""
    assert libc is not None
    checked(int(libc.unshare(_NEWNS)), "unshare mounts")
    _mount("", "/", "", _REC | _SLAVE)
    for name in os.listdir(SOURCES):
        checked(int(libc.umount2(os.fsencode(f"{SOURCES}/{name}"), _DETACH)), "umount sources")


class SharedDirectory:
    """A directory of which only some entries are visible, each mounted on its own; ``update`` follows changes.

    What stands in its place is an empty directory, written to by the supervisor only (through ``_made``)."""

    def __init__(self, directory: str, number: int) -> None:
        self.directory = directory
        self.source = f"{SOURCES}/{number}"
        self._made = f"{SOURCES}/{number}.made"
        self._shown: dict[str, Entry] = {}
        _bind("/old" + directory, "/new" + self.source, write=False)
        os.mkdir("/new" + self._made)
        _mount("tmpfs", "/new" + self._made, "tmpfs", _NOSUID | _NODEV, "size=16m,mode=755")
        _bind("/new" + self._made, "/new" + directory, write=True)

    def seal(self) -> None:
        """Nobody else adds mount points from here on."""
        _restrict("/new" + self.directory, _ATTR_RDONLY, below=0)

    def update(self, wanted: Iterable[Entry], root: str = "") -> None:
        """Entries are named as in the jail; ``root`` is where the new tree is at this moment. Raises OSError."""
        visible = {entry.path: entry for entry in wanted}
        for path in sorted(self._shown, reverse=True):
            if visible.get(path) != self._shown[path]:
                self._remove(root, path)
        for path, entry in sorted(visible.items()):
            if path not in self._shown:
                inside = path.removeprefix(self.directory)
                try:
                    _place(root + self.source + inside, root + self._made + inside)
                    _mount(root + self.source + inside, root + path, "", _BIND | _REC)
                except FileNotFoundError:
                    continue  # it went between the look and now
                self._shown[path] = entry

    def _remove(self, root: str, path: str) -> None:
        assert libc is not None
        del self._shown[path]
        checked(int(libc.umount2(os.fsencode(root + path), _DETACH)), f"umount {path}")
        place = root + self._made + path.removeprefix(self.directory)
        with suppress(OSError):  # a directory that holds other places stays
            os.rmdir(place) if os.path.isdir(place) else os.unlink(place)


def _resolved(path: str) -> str | None:
    """Where a path leads, by the links of the old tree; None when it leads nowhere."""
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
    _place(source, target)
    _mount(source, target, "", _BIND | _REC)
    _restrict(target, (0 if write else _ATTR_RDONLY) | _ATTR_NOSUID | (0 if device else _ATTR_NODEV))


def _place(source: str, target: str) -> None:
    """Something to mount on, of the same kind."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.stat(source)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


def _restrict(target: str, set_: int, *, below: int = _AT_RECURSIVE) -> None:
    attributes = struct.pack("=QQQQ", set_, 0, 0, 0)
    syscall("mount_setattr", -100, os.fsencode(target), below, attributes, len(attributes))


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    assert libc is not None
    named = [os.fsencode(text) or None for text in (source, target, kind)]
    checked(int(libc.mount(*named, ctypes.c_ulong(flags), os.fsencode(data) or None)), f"mount {target}")

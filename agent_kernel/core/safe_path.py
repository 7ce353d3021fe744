"""Files below a directory that somebody else writes: opened, made and walked without following a link out of it.

Every step is taken from the directory opened before it, so that nothing can be put in its way meanwhile.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agent_kernel.core.errors import InvalidRequest

DEPTH = 32
"""Directories deeper than this are not walked."""


@dataclass(frozen=True, slots=True)
class WalkedFile:
    """A regular file. ``name`` is relative, with ``/``; ``stamp`` is (size, mtime in ns)."""

    name: str
    stamp: tuple[int, int]


def relative_path(name: str) -> PurePosixPath:
    """``name`` as a path below a directory. Raises InvalidRequest for one that is absolute, has ``..`` or a NUL, or
    names nothing."""
    path = PurePosixPath(name)
    if "\0" in name or path.is_absolute() or ".." in path.parts or not path.parts:
        raise InvalidRequest("A path must be relative to the work directory, without '..'.", details={"name": name})
    return path


def open_file(root: Path, name: str) -> int:
    """A descriptor of the regular file ``name``; links in it are followed as long as they stay below ``root``. Raises
    OSError (also for links that leave it and for what is not a regular file), InvalidRequest."""
    inside = os.path.realpath(root)
    real = os.path.realpath(os.path.join(inside, relative_path(name)))
    if os.path.commonpath([inside, real]) != inside or real == inside:
        raise FileNotFoundError(f"{name} leads out of the work directory")
    *folders, last = PurePosixPath(real).relative_to(inside).parts
    with closing(_OpenDirectory.open(inside)) as here:
        for folder in folders:
            here.enter(folder)
        # Not blocking: to open a pipe would wait for its writer.
        file = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here.fd)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(f"{name} is not a regular file")
    return file


def file_stamp(root: Path, name: str) -> tuple[int, int] | None:
    """(size, mtime in ns) of what ``open_file`` would open; None where that fails."""
    try:
        file = open_file(root, name)
    except (OSError, InvalidRequest):
        return None
    with closing(os.fdopen(file, "rb")):
        status = os.fstat(file)
    return status.st_size, status.st_mtime_ns


def create_file(root: Path, name: str, mode: int = 0o644) -> int:
    """A descriptor of a new file directly below ``root``, which belongs to the owner of ``root``; what had the name is
    gone. Raises OSError."""
    with closing(_OpenDirectory.open(str(root))) as here:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=here.fd)
        file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=here.fd)
        owner = os.fstat(here.fd)
        os.fchmod(file, mode)
        if owner.st_uid != os.getuid():
            os.fchown(file, owner.st_uid, owner.st_gid)
    return file


def walk(root: Path, most: int, wanted: Callable[[str], bool]) -> tuple[list[WalkedFile], bool]:
    """The regular files, links left out, and whether that is all: up to ``most`` entries are looked at. ``wanted`` says
    of each name whether a directory is entered or a file counted. What can not be read is left out."""
    found: list[WalkedFile] = []
    try:
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return [], True
    with closing(_iterate_files(top, "", wanted, DEPTH)) as entries:
        looked_at = 0
        for one in entries:
            if one is not None:
                found.append(one)
            elif (looked_at := looked_at + 1) > most:
                return found, False
    return found, True


def _iterate_files(
    folder: int, prefix: str, wanted: Callable[[str], bool], depth: int
) -> Generator[WalkedFile | None, None, None]:
    """Something for every entry, so that whoever counts can stop. Closes ``folder``."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield None
                if not wanted(entry.name):
                    continue
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False) and depth:
                        below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                        yield from _iterate_files(below, f"{prefix}{entry.name}/", wanted, depth - 1)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        yield WalkedFile(prefix + entry.name, (status.st_size, status.st_mtime_ns))
    except OSError:
        return
    finally:
        os.close(folder)


class _OpenDirectory:
    """One that is open; ``enter`` goes one step down, through no link."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def open(cls, path: str) -> _OpenDirectory:
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def enter(self, name: str) -> None:
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
        os.close(self.fd)
        self.fd = below

    def close(self) -> None:
        os.close(self.fd)

"""Opens, creates and lists files below a directory that another program writes to, without following a link out of that
directory.

Every step of a path starts from the directory descriptor that the previous step opened, so that the other program
cannot insert a link in between.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agent_kernel.core.errors import InvalidRequest

DEPTH = 32
"""Maximum depth of the directories that ``walk`` enters."""
MODE = 0o644
"""The permission bits of new files: the owner can read and write them, all others can read them."""


@dataclass(frozen=True, slots=True)
class WalkedFile:
    """A regular file found by ``walk``. ``name`` is its path below ``root``, with ``/`` as separator, and ``stamp`` is
    (size, mtime in ns)."""

    name: str
    stamp: tuple[int, int]


def relative_path(name: str) -> PurePosixPath:
    """Return ``name`` as a path below a directory. Raises InvalidRequest if it is absolute or empty, or contains ``..``
    or NUL."""
    path = PurePosixPath(name)
    if "\0" in name or path.is_absolute() or ".." in path.parts or not path.parts:
        raise InvalidRequest("A path must be relative to the work directory, without '..'.", details={"name": name})
    return path


def open_file(root: Path, name: str) -> int:
    """Return a descriptor of the regular file ``name``.

    Links are followed as long as they stay below ``root``. Raises InvalidRequest, and OSError also for links that leave
    ``root`` and for anything but a regular file.
    """
    inside = os.path.realpath(root)
    real = os.path.realpath(os.path.join(inside, relative_path(name)))
    if os.path.commonpath([inside, real]) != inside or real == inside:
        raise FileNotFoundError(f"{name} is not below the work directory")
    *folders, last = PurePosixPath(real).relative_to(inside).parts
    with _open_directory(inside, folders) as folder:
        # With O_NONBLOCK, opening a pipe does not wait for its writer.
        file = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(f"{name} is not a regular file")
    return file


def file_stamp(root: Path, name: str) -> tuple[int, int] | None:
    """Return (size, mtime in ns) of the file that ``open_file`` would open; None if that fails."""
    try:
        file = open_file(root, name)
    except (OSError, InvalidRequest):
        return None
    with closing(os.fdopen(file, "rb")):
        status = os.fstat(file)
    return status.st_size, status.st_mtime_ns


def create_file(root: Path, name: str) -> int:
    """Create a file directly below ``root`` and return its descriptor.

    The new file belongs to the owner of ``root``. Raises FileExistsError if there is an entry of that name, also a link
    that leads nowhere, and OSError.
    """
    with _open_directory(root) as folder:
        file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, MODE, dir_fd=folder)
        owner = os.fstat(folder)
        os.fchmod(file, MODE)
        if owner.st_uid != os.getuid():
            os.fchown(file, owner.st_uid, owner.st_gid)
    return file


def walk(root: Path, max_entries: int, include: Callable[[str], bool]) -> tuple[list[WalkedFile], bool]:
    """Return the regular files below ``root``, without links, and whether the walk was complete.

    The walk stops, incomplete, after ``max_entries`` entries. ``include`` decides by name whether to enter a directory
    or return a file. Unreadable entries are skipped.
    """
    files: list[WalkedFile] = []
    try:
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return [], True
    with closing(_iterate_files(top, "", include, DEPTH)) as entries:
        looked_at = 0
        for entry in entries:
            if entry is not None:
                files.append(entry)
            elif (looked_at := looked_at + 1) > max_entries:
                return files, False
    return files, True


def _iterate_files(
    folder: int, prefix: str, include: Callable[[str], bool], depth: int
) -> Generator[WalkedFile | None, None, None]:
    """Yield None for every entry, so that the caller can count and stop, and then each file that ``include`` accepts.
    Closes ``folder``."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield None
                if not include(entry.name):
                    continue
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False) and depth:
                        below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                        yield from _iterate_files(below, f"{prefix}{entry.name}/", include, depth - 1)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        yield WalkedFile(prefix + entry.name, (status.st_size, status.st_mtime_ns))
    except OSError:
        return
    finally:
        os.close(folder)


@contextmanager
def _open_directory(root: Path | str, below: Sequence[str] = ()) -> Iterator[int]:
    """Yield a descriptor of the directory to which the names ``below`` lead from ``root``, following no link."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in below:
            parent = descriptor
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            os.close(parent)
        yield descriptor
    finally:
        os.close(descriptor)

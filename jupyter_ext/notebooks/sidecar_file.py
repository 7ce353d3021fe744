"""Reads and writes the files of one sidecar on disk. A file is written completely or not at all, and content that this
store does not know is never overwritten. All functions block."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from agent_kernel.core import atomic_file, process_identity
from agent_kernel.sessions import storage_locations

LEFT_OVER = re.compile(r"\.(\d{1,7})(?:\.tmp)?$")
"""Matches the end of a temporary file's name, which contains the process id of the file's writer."""
MAX_STEM_BYTES = 240
"""Limit for the part of a temporary file's name that comes from the sidecar. File systems allow 255 bytes."""
BLOB = re.compile(r"[0-9a-f]{64}")

FileStamp: TypeAlias = tuple[int, int, int]
Outcome: TypeAlias = Literal["unchanged", "written", "conflict"]


@dataclass(frozen=True, slots=True)
class SidecarFile:
    """The files of one sidecar.

    ``main`` is NAME.agent.json; the names of the other files beside the notebook derive from it. ``backup`` is the path
    of the previous version of ``main``. None stands for the path ``beside_bak``.
    """

    main: Path
    make_parents: bool = False
    backup: Path | None = None

    @property
    def bak(self) -> Path:
        """The path of the previous version of ``main``."""
        return self.backup or self.beside_bak

    @property
    def beside_bak(self) -> Path:
        """The path beside the notebook at which earlier releases stored the previous version."""
        return self._beside(storage_locations.SIDECAR_BAK)

    @property
    def conflict(self) -> Path:
        return self._beside(storage_locations.SIDECAR_CONFLICT)

    @property
    def blobs(self) -> Path:
        """The directory of large media, one file each, named by its hash."""
        return self.main.with_name(self.main.name.removesuffix(".json"))

    @property
    def stamp(self) -> FileStamp | None:
        """Time, size and inode of the document, which change with its content; None if there is no file."""
        try:
            facts = self.main.stat()
        except OSError:
            return None
        return facts.st_mtime_ns, facts.st_size, facts.st_ino

    def write(self, body: bytes, blobs: Mapping[str, bytes], is_known: Callable[[bytes], bool]) -> Outcome:
        """Write the document and its media, if ``is_known`` returns True for the present content of the sidecar.

        Media files to which no document beside the notebook refers any more are deleted. Raises OSError; the files are
        then unchanged."""
        present = _read(self.main)
        if present == body:
            # The file beside the notebook remains the backup if it cannot be moved; the next write tries again.
            with contextlib.suppress(OSError):
                self._move_beside_bak()
            return "unchanged"
        conflict = present is not None and not is_known(present)
        target = self.conflict if conflict else self.main
        if conflict and _read(target) == body:
            return "conflict"
        if self.make_parents:
            self.main.parent.mkdir(parents=True, exist_ok=True)
        self._sweep()
        for name, data in blobs.items():
            self._write_blob(name, data)
        temporary = _write_temporary(target, body)
        try:
            if target == self.main and present is not None:
                self._keep(present)
            temporary.replace(target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        atomic_file.sync_directory(target.parent)
        if not conflict:
            self._move_beside_bak()
        self.collect()
        return "conflict" if conflict else "written"

    def move(self, new: SidecarFile) -> None:
        """Rename the sidecar to ``new``; do nothing if ``new`` exists already. Raises OSError."""
        if not self.main.exists() or new.main.exists():
            return
        if new.make_parents:
            new.main.parent.mkdir(parents=True, exist_ok=True)
        for name in ("main", "bak", "beside_bak", "conflict", "blobs"):
            old_path, new_path = getattr(self, name), getattr(new, name)
            if os.path.exists(old_path) and not os.path.exists(new_path):
                if name == "bak" and new.backup:
                    _make_private_directory(new.backup.parent)
                old_path.rename(new_path)

    def move_backup(self, new: SidecarFile) -> None:
        """Move the backup of this sidecar to the place of the backup of ``new``, after a person has moved the files
        beside the notebook to ``new``. Do nothing if ``new`` has a backup already, or if this sidecar still exists.
        Raises OSError."""
        if self.backup and new.backup and self.backup.is_file() and not (self.main.exists() or new.backup.exists()):
            _make_private_directory(new.backup.parent)
            self.backup.rename(new.backup)

    def remove(self, is_known: Callable[[bytes], bool]) -> None:
        """Delete the sidecar if ``is_known`` returns True for its content, which means that the store has this content.
        Raises OSError."""
        present = _read(self.main)
        if present is None or not is_known(present):
            return
        self.main.unlink(missing_ok=True)
        self._unlink_baks()
        if not os.path.exists(self.conflict):
            shutil.rmtree(self.blobs, ignore_errors=True)

    def read(self, max_bytes: int) -> bytes | None:
        """Return the content of the document; None if there is no file. Raises OSError, also if the file is larger than
        ``max_bytes``."""
        if self.main.exists() and self.main.stat().st_size > max_bytes:
            raise OSError(errno.EFBIG, "is too large", str(self.main))
        return _read(self.main)

    def forget_bak(self) -> None:
        """Delete the backup, because it still holds content that a person wanted to delete. Raises OSError."""
        self._unlink_baks()
        self.collect()

    def find_backup(self) -> str:
        """Return the path of the previous version of the document, or "" if there is none."""
        return next((str(path) for path in (self.bak, self.beside_bak) if os.path.isfile(path)), "")

    def _beside(self, suffix: str) -> Path:
        stem = self.main.name.removesuffix(storage_locations.SIDECAR)
        return self.main.with_name(storage_locations.sidecar_name(stem, suffix))

    def _unlink_baks(self) -> None:
        self.bak.unlink(missing_ok=True)
        if os.path.lexists(self.beside_bak):
            self.beside_bak.unlink(missing_ok=True)

    def files(self, hashes: Collection[str], max_bytes: int) -> dict[str, bytes]:
        """Return the contents of the media files with these ``hashes``, by hash, up to ``max_bytes`` bytes in total.
        Symbolic links are not followed."""
        contents: dict[str, bytes] = {}
        if self.blobs.is_symlink():
            return contents
        for name in hashes:
            path = self.blobs / name
            if BLOB.fullmatch(name) is None or path.is_symlink() or not path.is_file():
                continue
            max_bytes -= path.stat().st_size
            if max_bytes < 0:
                break
            contents[name] = path.read_bytes()
        return contents

    def collect(self) -> None:
        """Delete the media files to which neither the document nor its backup or conflict version refers."""
        if not self.blobs.is_dir() or self.blobs.is_symlink():
            return
        documents = [_read(path) or b"" for path in (self.main, self.bak, self.beside_bak, self.conflict)]
        for path in self.blobs.iterdir():
            if BLOB.fullmatch(path.name) and not any(path.name.encode() in document for document in documents):
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.blobs.rmdir()  # the directory is removed only if it is empty

    def _sweep(self) -> None:
        """Delete partial files of writers that were killed."""
        stem = glob.escape(_shorten(self.main.name).removesuffix(".json"))
        directories = {self.main.parent, self.bak.parent}
        for path in (
            *(path for directory in directories for path in directory.glob(f".{stem}.*")),
            *self.blobs.glob(".*.tmp"),
        ):
            writer = LEFT_OVER.search(path.name)
            if writer is not None and not process_identity.is_alive(int(writer[1]), ""):
                path.unlink(missing_ok=True)

    def _write_blob(self, name: str, data: bytes) -> None:
        path = self.blobs / name
        if self.blobs.is_symlink():
            raise OSError(errno.EINVAL, f"{self.blobs.name} is a symbolic link, which is not followed", str(self.blobs))
        if not path.exists():
            self.blobs.mkdir(exist_ok=True)
            _write_temporary(path, data).replace(path)

    def _keep(self, present: bytes) -> None:
        """Keep ``present``, the present version, as the backup. Uses a hard link where possible, so that there is a
        file with the sidecar's name at any time."""
        if self.backup:
            _make_private_directory(self.backup.parent)
        spare = self.bak.with_name(f".{_shorten(self.bak.name)}.{os.getpid()}")
        spare.unlink(missing_ok=True)
        try:
            os.link(self.main, spare)
        except OSError:
            _write_temporary(self.bak, present).replace(self.bak)
            return
        spare.replace(self.bak)
        # Renaming does nothing if both names are links to the same file: a process may have been killed here.
        spare.unlink(missing_ok=True)

    def _move_beside_bak(self) -> None:
        """Move the backup that an earlier release left beside the notebook to ``backup``, unless a backup of a later
        version is there already. The file beside the notebook is deleted after its copy was read back. Raises OSError;
        the file beside the notebook is then still there."""
        old = self.beside_bak
        if self.backup is None or not os.path.isfile(old) or old.is_symlink():
            return
        if not self.backup.exists() or self.backup.stat().st_mtime_ns < old.stat().st_mtime_ns:
            _make_private_directory(self.backup.parent)
            content = old.read_bytes()
            copy = _write_temporary(self.backup, content)
            if _read(copy) != content:
                copy.unlink(missing_ok=True)
                raise OSError(errno.EIO, "differs from what was written", str(copy))
            copy.replace(self.backup)
            atomic_file.sync_directory(self.backup.parent)
        old.unlink(missing_ok=True)


def _read(path: Path) -> bytes | None:
    """Return the content of a regular file; reading a pipe or a device could block forever. Raises OSError."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        return path.read_bytes()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            return None
        raise


def _make_private_directory(path: Path) -> None:
    """Create a directory and its missing parents so that other users cannot read them."""
    if not path.is_dir():
        _make_private_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def _shorten(name: str) -> str:
    """Return the beginning of a file name, so that a dot, a process id and ``.tmp`` can be added to it."""
    return os.fsencode(name)[:MAX_STEM_BYTES].decode(errors="ignore")


def _write_temporary(target: Path, body: bytes) -> Path:
    """Write a hidden temporary file beside the target, with the permissions of the person's other files."""
    return atomic_file.write_synced(target.with_name(f".{_shorten(target.name)}.{os.getpid()}.tmp"), body, 0o666)

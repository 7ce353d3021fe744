"""Files beside the database for the bytes of media and files that are too large for a row. Each is named by the SHA-256
of its bytes.

    sessions.db.blobs/NAMESPACE/ab/abcdef...

A file is completely on the disk before a row refers to it, and is deleted only when no row refers to it. A process that
writes or deletes a file holds the write lock of the database, so processes that share the database need no other
synchronization.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_kernel.core import atomic_file

IN_ROW = 16 * 1024
"""Largest number of bytes that is stored in a row of the database instead of a file. A file costs about 5 ms (two
fsyncs) whatever its size, a row of this size 0.2 ms. Larger rows make the database slow to copy and to vacuum (measured
on ext4, one virtual disk)."""
PART = ".part"


@dataclass(frozen=True, slots=True)
class BlobFiles:
    """The blob files below ``directory``, which is created with mode 0700 at the first write; files have mode 0600.
    Data of up to ``in_row`` bytes belongs in a row."""

    directory: Path
    in_row: int = IN_ROW

    def put(self, namespace: str, digest: str, data: bytes) -> None:
        """Write ``data``, whose SHA-256 is ``digest``, and sync the file to the disk before returning. Raises
        OSError."""
        path = self._path(namespace, digest)
        if _read_if_intact(path, digest) is not None:
            return
        self._move_in(atomic_file.write_synced(self._partial(path), data), path)

    def take(self, namespace: str, digest: str, written: Path) -> None:
        """Store the content of the file ``written``, as ``put`` stores bytes. ``written`` must be synced and have the
        hash ``digest``; it stays where it is. On the same disk a hard link is created instead of a copy. Raises
        OSError."""
        path = self._path(namespace, digest)
        partial = self._partial(path)
        try:
            _link_or_copy(written, partial)
            self._move_in(partial, path)
        finally:
            partial.unlink(missing_ok=True)  # a rename does nothing if both names are links to the same file

    def find(self, namespace: str, digest: str, size: int) -> Path | None:
        """Return the path of the file if it exists with this size. Its content is not checked."""
        path = self._path(namespace, digest)
        try:
            return path if path.stat().st_size == size else None
        except OSError:
            return None

    def get(self, namespace: str, digest: str) -> bytes | None:
        """Return the content, or None if the file is missing or damaged."""
        return _read_if_intact(self._path(namespace, digest), digest)

    def remove(self, namespace: str, digest: str) -> None:
        with suppress(OSError):
            self._path(namespace, digest).unlink()

    def all_files(self) -> Iterator[Path]:
        """Yield the path of every blob file, including files that are not written completely."""
        return (path for path in self.directory.glob("*/*/*") if path.is_file())

    def relative_path(self, namespace: str, digest: str) -> str:
        """Return where the file is, relative to the directory: ``NAMESPACE/ab/abcdef...``."""
        return f"{hashlib.sha256(namespace.encode()).hexdigest()[:16]}/{digest[:2]}/{digest}"

    def _partial(self, path: Path) -> Path:
        """Create the directories of a file, and return the path at which it is written before it is complete."""
        for folder in (self.directory, path.parent.parent, path.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
        return path.with_name(f"{path.name}.{secrets.token_hex(4)}{PART}")

    def _move_in(self, partial: Path, path: Path) -> None:
        """Rename the completely written file ``partial`` to ``path``, and sync the directories above it."""
        os.replace(partial, path)
        for folder in (path.parent, path.parent.parent, self.directory, self.directory.parent):
            atomic_file.sync_directory(folder)

    def _path(self, namespace: str, digest: str) -> Path:
        return self.directory / self.relative_path(namespace, digest)


class StoreConnection(sqlite3.Connection):
    """A SQLite connection that also knows the blob files of its database. ``files`` is None if all bytes are stored in
    rows. ``unnamed`` holds (namespace, hash) of files whose rows this process has deleted; the files are deleted after
    the transaction. ``list_rows`` is called with the rows that ``rows.insert_rows`` is about to insert into a table."""

    files: BlobFiles | None = None
    list_rows: Callable[[sqlite3.Connection, str, Sequence[Sequence[Any]]], None] | None = None

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # whatever sqlite3.connect passes on
        self.unnamed: set[tuple[str, str]] = set()


def matches_hash(path: Path, digest: str) -> bool:
    """Return whether the SHA-256 of the file is ``digest``. The file is read in blocks."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    except OSError:
        return False


def _link_or_copy(source: Path, target: Path) -> None:
    """Create a hard link, or a copy if the disk has no hard links, or if source and target are on different disks."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        target.chmod(0o600)
        with target.open("rb") as file:
            os.fsync(file.fileno())


def _read_if_intact(path: Path, digest: str) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == digest else None

"""Bytes too large for a row of the store: files named by their hash, beside the database that names them.

    sessions.db.blobs/NAMESPACE/ab/abcdef...

A file is whole on the disk before a row names it, and is taken away only where no row does. Whoever writes or removes
one holds the write lock of the database, so processes that share it need no other agreement.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent_kernel.sessions import atomic_file

IN_ROW = 16 * 1024
"""Bytes up to which a medium stays in its row. A file costs about 5 ms (two fsyncs) whatever its size, a row of this
size 0.2 ms; larger ones make the database slow to copy and to vacuum (measured on ext4, one virtual disk)."""
PART = ".part"


@dataclass(frozen=True, slots=True)
class BlobFiles:
    """The files below ``directory``, which is made with mode 0700 when the first is written; files have 0600. Media of
    up to ``in_row`` bytes are not for them."""

    directory: Path
    in_row: int = IN_ROW

    def put(self, namespace: str, digest: str, data: bytes) -> None:
        """``data``, whose SHA-256 is ``digest``, is on the disk when this returns. Raises OSError."""
        path = self._path(namespace, digest)
        if _whole(path, digest) is not None:
            return
        folders = self._folders(path)
        partial = path.with_name(f"{digest}.{secrets.token_hex(4)}{PART}")
        os.replace(atomic_file.written(partial, data), path)
        for folder in (*reversed(folders), self.directory.parent):
            atomic_file.sync_directory(folder)

    def take(self, namespace: str, digest: str, written: Path) -> None:
        """As ``put``, of a file that is written and synced already and whose hash is known; it stays where it is, and
        costs no copy on the same disk. Raises OSError."""
        path = self._path(namespace, digest)
        folders = self._folders(path)
        partial = path.with_name(f"{digest}.{secrets.token_hex(4)}{PART}")
        try:
            _linked(written, partial)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)  # a rename to a link of the same file does nothing
        for folder in (*reversed(folders), self.directory.parent):
            atomic_file.sync_directory(folder)

    def find(self, namespace: str, digest: str, size: int) -> Path | None:
        """The file, if it is there with this size; what is in it is not looked at."""
        path = self._path(namespace, digest)
        try:
            return path if path.stat().st_size == size else None
        except OSError:
            return None

    def get(self, namespace: str, digest: str) -> bytes | None:
        """None when the file is missing, or is not what was written."""
        return _whole(self._path(namespace, digest), digest)

    def remove(self, namespace: str, digest: str) -> None:
        with suppress(OSError):
            self._path(namespace, digest).unlink()

    def everything(self) -> Iterator[Path]:
        """Every file, those that were never finished too."""
        return (path for path in self.directory.glob("*/*/*") if path.is_file())

    def place(self, namespace: str, digest: str) -> str:
        """Where a file lies, relative to the directory."""
        return f"{hashlib.sha256(namespace.encode()).hexdigest()[:16]}/{digest[:2]}/{digest}"

    def _folders(self, path: Path) -> tuple[Path, ...]:
        """Made, from the outermost."""
        folders = (self.directory, path.parent.parent, path.parent)
        for folder in folders:
            folder.mkdir(mode=0o700, exist_ok=True)
        return folders

    def _path(self, namespace: str, digest: str) -> Path:
        return self.directory / self.place(namespace, digest)


class Connection(sqlite3.Connection):
    """A connection that knows the files beside its database (None: everything stays in rows), and which of them lost
    the row that named them in this process's last transactions."""

    files: BlobFiles | None = None

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # whatever sqlite3.connect passes on
        self.unnamed: set[tuple[str, str]] = set()


def is_whole(path: Path, digest: str) -> bool:
    """Whether the file's SHA-256 is ``digest``; in little memory."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    except OSError:
        return False


def _linked(source: Path, target: Path) -> None:
    """One file with two names; a copy where the disk has no such thing, or is another one."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        target.chmod(0o600)
        with target.open("rb") as file:
            os.fsync(file.fileno())


def _whole(path: Path, digest: str) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == digest else None

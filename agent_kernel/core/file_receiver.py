"""Receives the bytes of a file: writes them to disk as they arrive, and counts and hashes them. The whole file is never
held in memory."""

from __future__ import annotations

import codecs
import hashlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent_kernel.core.atomic_file import store_errors
from agent_kernel.core.errors import FileTooLarge, StoreFull
from agent_kernel.core.files import PREVIEW_CHARS

CHUNK = 1 << 20
SMALL = 16 * 1024
"""Files up to this size are stored inline, and need not be synced to disk first."""
STALE_S = 3600.0
"""Age in seconds at which files left by a crashed process are removed."""
SUFFIX = ".part"
RESERVE_BYTES = 512 << 20
"""Free space that copies out of a sandbox leave on the store's disk; a twentieth on a small disk."""
METADATA_BYTES = 1 << 16
"""Disk space that a file may use beside its content."""
ZEROS = bytes(CHUNK)


class CopyStopped(Exception):
    """The call whose files were being copied was cancelled."""


class CopyTimeout(Exception):
    """Copying the files of a call exceeded its time limit."""


class CopyBudget:
    """The limits for copying files out of a sandbox for one call.

    All files together may have ``limit`` bytes and take ``within_s`` seconds, while RESERVE_BYTES of the disk of
    ``directory`` stay free. ``stop``, from any thread, ends a copy at its next chunk.
    """

    def __init__(self, directory: Path, limit: int, within_s: float) -> None:
        self._directory = directory
        self._limit = self._left = limit
        self._deadline = time.monotonic() + within_s
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def admit(self, status: os.stat_result) -> int:
        """Charge a file to the budget and return how many bytes may be read of it.

        A file counts with its apparent size or its allocated blocks, whichever is more: reading a sparse file costs its
        apparent size. Raises FileTooLarge, StoreFull, CopyTimeout, CopyStopped.
        """
        self.check()
        size = max(status.st_size, 512 * status.st_blocks - METADATA_BYTES)
        if size > self._left:
            raise FileTooLarge(
                f"The files of one call can have at most {self._limit / 2**20:g} MiB together on this server."
            )
        self._check_disk(status.st_size)
        self._left -= size
        return status.st_size

    def check(self) -> None:
        """Raise CopyTimeout or CopyStopped if the copy must end."""
        if self._stopped.is_set():
            raise CopyStopped
        if time.monotonic() > self._deadline:
            raise CopyTimeout("copying the files of this call exceeded the time limit")

    def _check_disk(self, size: int) -> None:
        with store_errors("A file"):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            disk = shutil.disk_usage(self._directory)
        if disk.free - size < min(RESERVE_BYTES, disk.total // 20):
            raise StoreFull("A file was not copied: the disk of the store is nearly full.", hint="Free some space.")


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A completely received file. ``preview`` is the beginning of a text; ``text`` means that all of it is UTF-8
    without NUL."""

    path: Path
    size: int
    hash: str
    text: bool
    preview: str

    @property
    def body(self) -> bytes | Path:
        """The body for the store: the bytes of a small file, else the path of the synced file."""
        return self.path.read_bytes() if self.size <= SMALL else self.path

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


class FileReceiver:
    """Receives one file in ``directory`` (created with mode 0700), up to ``limit`` bytes.

    Blocking. ``close`` removes an incomplete file. Raises StoreFull or StoreError if the disk does not accept it.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._limit = limit
        self._path = directory / f"{secrets.token_hex(12)}{SUFFIX}"
        with store_errors("A file"):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_stale(directory)
            descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        self._file: BinaryIO | None = os.fdopen(descriptor, "wb", buffering=0)
        self._hash = hashlib.sha256()
        self._decoder: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder("utf-8")()
        self._preview = ""
        self.size = 0

    def write(self, chunk: bytes) -> None:
        """Append a chunk. Raises FileTooLarge, StoreError."""
        assert self._file is not None, "the receiver is closed"
        self.size += len(chunk)
        if self.size > self._limit:
            raise FileTooLarge(f"A file can have at most {self._limit / 2**20:g} MiB on this server.")
        self._hash.update(chunk)
        self._decode(chunk, final=False)
        left = memoryview(chunk)
        with store_errors("A file"):
            if len(chunk) == CHUNK and chunk == ZEROS:  # leave a hole, which uses no disk space
                self._file.seek(CHUNK, os.SEEK_CUR)
                return
            while left:
                left = left[self._file.write(left) :]

    def finish(self) -> ReceivedFile:
        """Complete the file on the disk, and describe it. Raises StoreError."""
        assert self._file is not None, "it is closed"
        self._decode(b"", final=True)
        with store_errors("A file"):
            if self._file.tell() > os.fstat(self._file.fileno()).st_size:
                self._file.truncate()  # extend the file over the hole at its end
            if self.size > SMALL:
                os.fsync(self._file.fileno())
            self._file.close()
        self._file = None
        text = self._decoder is not None
        return ReceivedFile(self._path, self.size, self._hash.hexdigest(), text, self._preview if text else "")

    def close(self) -> None:
        """Remove the file unless it is complete. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._path.unlink(missing_ok=True)

    def _decode(self, chunk: bytes, *, final: bool) -> None:
        if self._decoder is None:
            return
        try:
            if b"\0" in chunk:
                raise UnicodeError
            text = self._decoder.decode(chunk, final)
        except UnicodeError:
            self._decoder = None
        else:
            self._preview += text[: PREVIEW_CHARS - len(self._preview)]


def copy_from_descriptor(source: int, directory: Path, limit: int, budget: CopyBudget) -> ReceivedFile:
    """Copy the rest of the descriptor ``source``, and close it.

    Raises FileTooLarge, StoreError, CopyTimeout, CopyStopped, and OSError if it cannot be read; nothing is then left in
    ``directory``.
    """
    with os.fdopen(source, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if status.st_size > limit:
            raise FileTooLarge(f"A file can have at most {limit / 2**20:g} MiB on this server.")
        most = budget.admit(status)

        def pieces() -> Iterator[bytes]:
            while chunk := file.read(CHUNK):
                budget.check()
                yield chunk

        return receive_chunks(pieces(), directory, most)


def receive_chunks(chunks: Iterator[bytes], directory: Path, limit: int) -> ReceivedFile:
    """Receive a file from an iterator. Raises FileTooLarge, StoreError."""
    incoming = FileReceiver(directory, limit)
    try:
        for chunk in chunks:
            incoming.write(chunk)
        return incoming.finish()
    finally:
        incoming.close()


def _remove_stale(directory: Path) -> None:
    for path in directory.glob(f"*{SUFFIX}"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - STALE_S:
                path.unlink()

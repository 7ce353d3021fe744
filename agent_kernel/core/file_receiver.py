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
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent_kernel.core.atomic_file import store_errors
from agent_kernel.core.errors import FileTooLarge, StoreFull
from agent_kernel.core.files import PREVIEW_CHARS

CHUNK = 1 << 20
SMALL = 16 * 1024
"""Files up to this size in bytes are passed to the store as bytes, so they need not be synced to the disk."""
STALE_S = 3600.0
"""Age in seconds from which files that a crashed process left in the directory are removed."""
SUFFIX = ".part"
RESERVE_BYTES = 512 << 20
"""Bytes that stay free on the store's disk when files are copied out of a sandbox. On a small disk, a twentieth of the
disk stays free instead."""
METADATA_BYTES = 1 << 16
"""Bytes of disk space that a file may occupy in addition to its content without counting against a budget."""
ZEROS = bytes(CHUNK)


class CopyStopped(Exception):
    """Raised when the call whose files were being copied was cancelled."""


class CopyTimeout(Exception):
    """Raised when copying the files of a call exceeded its time limit."""


class CopyBudget:
    """The limits for copying files out of a sandbox for one call.

    All files of the call together may have at most ``limit`` bytes and take at most ``within_s`` seconds, and
    RESERVE_BYTES must stay free on the disk of ``directory``. ``stop`` may be called from any thread and ends a copy at
    its next chunk.
    """

    def __init__(self, directory: Path, limit: int, within_s: float) -> None:
        self._directory = directory
        self._limit = self._left = limit
        self._deadline = time.monotonic() + within_s
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def admit(self, status: os.stat_result) -> int:
        """Subtract a file with this ``status`` from the budget, and return how many bytes of it may be read.

        A file counts with its apparent size or the size of its allocated blocks, whichever is larger. A sparse file
        must be read in its apparent size, although it occupies less. Raises FileTooLarge, StoreFull, CopyTimeout,
        CopyStopped.
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
            raise StoreFull(
                ("A file was not copied, because the disk of the session store is nearly full."),
                hint="Free some space.",
            )


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A completely received file. ``text`` is true if all of it is UTF-8 without NUL; then ``preview`` is its
    beginning."""

    path: Path
    size: int
    hash: str
    text: bool
    preview: str

    @property
    def body(self) -> bytes | Path:
        """The value to pass to the store: the bytes of a small file, otherwise the path of the synced file."""
        return self.path.read_bytes() if self.size <= SMALL else self.path

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


class FileReceiver:
    """Writes the bytes of one file, which arrive in chunks, to a file in ``directory`` (created with mode 0700). At
    most ``limit`` bytes are accepted.

    All methods block. ``close`` removes an incomplete file. Raises StoreFull or StoreError if the file cannot be
    written.
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
        unwritten = memoryview(chunk)
        with store_errors("A file"):
            if len(chunk) == CHUNK and chunk == ZEROS:  # leave a hole, which uses no disk space
                self._file.seek(CHUNK, os.SEEK_CUR)
                return
            while unwritten:
                unwritten = unwritten[self._file.write(unwritten) :]

    def finish(self) -> ReceivedFile:
        """Complete the file, sync it unless it is small, and return its description. Raises StoreError."""
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
    """Copy the rest of the open file descriptor ``source`` to a file in ``directory``, and close the descriptor.

    Raises FileTooLarge, StoreError, CopyTimeout, CopyStopped, and OSError if ``source`` cannot be read. In each case
    the incomplete copy is removed."""
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
    """Write the bytes of an iterator to a file in ``directory``. Raises FileTooLarge, StoreError."""
    with closing(FileReceiver(directory, limit)) as incoming:
        for chunk in chunks:
            incoming.write(chunk)
        return incoming.finish()


def _remove_stale(directory: Path) -> None:
    for path in directory.glob(f"*{SUFFIX}"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - STALE_S:
                path.unlink()

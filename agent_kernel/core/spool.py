"""Bytes on their way into the store: written to the disk as they come, counted and hashed, never all in memory."""

from __future__ import annotations

import codecs
import errno
import hashlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent_kernel.core.errors import FileTooLarge, StoreError, StoreFull
from agent_kernel.core.files import PREVIEW_CHARS

CHUNK = 1 << 20
SMALL = 16 * 1024
"""Bytes up to which a file goes into the store by itself, and need not be on the disk before."""
STALE_S = 3600.0
"""What a crashed process left here is taken away after this long (seconds)."""
SUFFIX = ".part"
RESERVE_BYTES = 512 << 20
"""Of the store's disk that copies out of a sandbox leave free; of a small disk a twentieth."""
METADATA_BYTES = 1 << 16
"""What a disk may use for a file beside its content."""
ZEROS = bytes(CHUNK)


class CopyStopped(Exception):
    """The call whose files were being copied was cancelled."""


class CopyTimeout(Exception):
    """The copies of a call took longer than they may."""


class CopyBudget:
    """What may be copied out of a sandbox for one call: ``limit`` bytes of all files together, within ``within_s``
    seconds, while RESERVE_BYTES of the disk of ``directory`` stay free. ``stop``, from any thread, ends the copy that
    goes on at its next piece."""

    def __init__(self, directory: Path, limit: int, within_s: float) -> None:
        self._directory = directory
        self._limit = self._left = limit
        self._deadline = time.monotonic() + within_s
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def admit(self, status: os.stat_result) -> int:
        """Takes a file off the budget and returns how many bytes may be read of it. A file counts with what it seems to
        have or what the disk holds for it, whichever is more: a sparse file costs its reader what it seems to have.
        Raises FileTooLarge, StoreFull, CopyTimeout, CopyStopped."""
        self.check()
        size = max(status.st_size, 512 * status.st_blocks - METADATA_BYTES)
        if size > self._left:
            raise FileTooLarge(f"The files of one call have at most {self._limit / 2**20:g} MiB together here.")
        self._check_disk(status.st_size)
        self._left -= size
        return status.st_size

    def check(self) -> None:
        """Raises CopyTimeout, CopyStopped."""
        if self._stopped.is_set():
            raise CopyStopped
        if time.monotonic() > self._deadline:
            raise CopyTimeout("copying the files of this call took longer than its run may")

    def _check_disk(self, size: int) -> None:
        with _disk_errors_as_store_errors():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            disk = shutil.disk_usage(self._directory)
        if disk.free - size < min(RESERVE_BYTES, disk.total // 20):
            raise StoreFull("A file was not copied: the disk of the store is nearly full.", hint="Free some space.")


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """Bytes that came whole. ``preview`` is the beginning of a text; ``text``: all of it is UTF-8 without NUL."""

    path: Path
    size: int
    hash: str
    text: bool
    preview: str

    @property
    def body(self) -> bytes | Path:
        """For the store: small ones as they are, of others the path where they are written and synced."""
        return self.path.read_bytes() if self.size <= SMALL else self.path

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


class FileReceiver:
    """One file that is being received in ``directory`` (made with mode 0700). More than ``limit`` bytes are refused.
    Blocking; ``close`` takes away what did not arrive. Raises StoreFull or StoreError where the disk does not take it.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._limit = limit
        self._path = directory / f"{secrets.token_hex(12)}{SUFFIX}"
        with _disk_errors_as_store_errors():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_stale(directory)
            descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        self._file: BinaryIO | None = os.fdopen(descriptor, "wb", buffering=0)
        self._hash = hashlib.sha256()
        self._decoder: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder("utf-8")()
        self._preview = ""
        self.size = 0

    def write(self, chunk: bytes) -> None:
        """Raises FileTooLarge, StoreError."""
        assert self._file is not None, "it is closed"
        self.size += len(chunk)
        if self.size > self._limit:
            raise FileTooLarge(f"A file has at most {self._limit / 2**20:g} MiB here.")
        self._hash.update(chunk)
        self._decode(chunk, final=False)
        left = memoryview(chunk)
        with _disk_errors_as_store_errors():
            if len(chunk) == CHUNK and chunk == ZEROS:  # a hole stays a hole, which takes no place on the disk
                self._file.seek(CHUNK, os.SEEK_CUR)
                return
            while left:
                left = left[self._file.write(left) :]

    def arrived(self) -> ReceivedFile:
        """All of it came. Raises StoreError."""
        assert self._file is not None, "it is closed"
        self._decode(b"", final=True)
        with _disk_errors_as_store_errors():
            if self._file.tell() > os.fstat(self._file.fileno()).st_size:
                self._file.truncate()  # it ends with a hole
            if self.size > SMALL:
                os.fsync(self._file.fileno())
            self._file.close()
        self._file = None
        text = self._decoder is not None
        return ReceivedFile(self._path, self.size, self._hash.hexdigest(), text, self._preview if text else "")

    def close(self) -> None:
        """Idempotent; nothing is left unless it arrived."""
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
            said = self._decoder.decode(chunk, final)
        except UnicodeError:
            self._decoder = None
        else:
            self._preview += said[: PREVIEW_CHARS - len(self._preview)]


def copy_from_descriptor(source: int, directory: Path, limit: int, budget: CopyBudget) -> ReceivedFile:
    """Copies what the descriptor ``source`` has from here on, and closes it. Raises FileTooLarge, StoreError,
    CopyTimeout, CopyStopped, and OSError when it cannot be read; then nothing is left in ``directory``."""
    with os.fdopen(source, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if status.st_size > limit:
            raise FileTooLarge(f"A file has at most {limit / 2**20:g} MiB here.")
        most = budget.admit(status)

        def pieces() -> Iterator[bytes]:
            while chunk := file.read(CHUNK):
                budget.check()
                yield chunk

        return receive_chunks(pieces(), directory, most)


def receive_chunks(chunks: Iterator[bytes], directory: Path, limit: int) -> ReceivedFile:
    """Raises FileTooLarge, StoreError."""
    incoming = FileReceiver(directory, limit)
    try:
        for chunk in chunks:
            incoming.write(chunk)
        return incoming.arrived()
    finally:
        incoming.close()


@contextmanager
def _disk_errors_as_store_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        kind = StoreFull if full else StoreError
        raise kind(
            f"A file could not be written: {error.strerror or error}.", hint="Free some space." * full
        ) from error


def _remove_stale(directory: Path) -> None:
    for path in directory.glob(f"*{SUFFIX}"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - STALE_S:
                path.unlink()

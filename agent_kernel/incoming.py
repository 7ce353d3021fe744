"""Bytes on their way into the store: written to the disk as they come, counted and hashed, never all in memory."""

from __future__ import annotations

import codecs
import errno
import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent_kernel.errors import FileTooLarge, StoreError, StoreFull
from agent_kernel.files import PREVIEW_CHARS

CHUNK = 1 << 20
SMALL = 16 * 1024
"""Bytes up to which a file goes into the store by itself, and need not be on the disk before."""
STALE_S = 3600.0
"""What a crashed process left here is taken away after this long (seconds)."""
SUFFIX = ".part"


@dataclass(frozen=True, slots=True)
class Arrived:
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


class Incoming:
    """One file that is being received in ``directory`` (made with mode 0700). More than ``limit`` bytes are refused.
    Blocking; ``close`` takes away what did not arrive. Raises StoreFull or StoreError where the disk does not take it.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._limit = limit
        self._path = directory / f"{secrets.token_hex(12)}{SUFFIX}"
        with _disk():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sweep(directory)
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
        with _disk():
            while left:
                left = left[self._file.write(left) :]

    def arrived(self) -> Arrived:
        """All of it came. Raises StoreError."""
        assert self._file is not None, "it is closed"
        self._decode(b"", final=True)
        with _disk():
            if self.size > SMALL:
                os.fsync(self._file.fileno())
            self._file.close()
        self._file = None
        text = self._decoder is not None
        return Arrived(self._path, self.size, self._hash.hexdigest(), text, self._preview if text else "")

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


def copied(source: int, directory: Path, limit: int) -> Arrived:
    """What the descriptor ``source`` has from here on; it is closed. Raises FileTooLarge, StoreError, and OSError when
    it can not be read."""
    with os.fdopen(source, "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise FileTooLarge(f"A file has at most {limit / 2**20:g} MiB here.")
        return received(iter(lambda: file.read(CHUNK), b""), directory, limit)


def received(chunks: Iterator[bytes], directory: Path, limit: int) -> Arrived:
    """Raises FileTooLarge, StoreError."""
    incoming = Incoming(directory, limit)
    try:
        for chunk in chunks:
            incoming.write(chunk)
        return incoming.arrived()
    finally:
        incoming.close()


@contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        kind = StoreFull if full else StoreError
        raise kind(
            f"A file could not be written: {error.strerror or error}.", hint="Free some space." * full
        ) from error


def _sweep(directory: Path) -> None:
    for path in directory.glob(f"*{SUFFIX}"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - STALE_S:
                path.unlink()

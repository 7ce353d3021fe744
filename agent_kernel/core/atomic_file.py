"""Writes files so that they are complete and on the disk before they get their final names, and converts errors of the
disk into errors of agent-kernel."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agent_kernel.core.errors import StoreError, StoreFull


def write_synced(partial: Path, data: bytes, mode: int = 0o600) -> Path:
    """Create the file ``partial`` with this content, sync it to the disk, and return its path. The caller then renames
    it to its final name. An existing file or link at this path is replaced; on failure the file is removed. Raises
    OSError."""
    partial.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:  # also on Ctrl-C: no partial file stays behind
        partial.unlink(missing_ok=True)
        raise
    return partial


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> Path:
    """Write the file ``path`` in one step: other processes see either its former content or all of ``data``. Return the
    path. Raises OSError; the former file is then unchanged."""
    partial = write_synced(path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp"), data, mode)
    try:
        return partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def store_errors(subject: str) -> Iterator[None]:
    """In the ``with`` block, replace an OSError by StoreFull or StoreError. ``subject`` is the subject of the error
    message."""
    try:
        yield
    except OSError as error:
        message = f"{subject} could not be written: {error.strerror or error}."
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(message, hint="Free some space on the disk.") from error
        raise StoreError(message, hint="Check that the directory can be written.") from error


def sync_directory(path: Path) -> None:
    """Sync a directory, so that renames into it survive a power cut. Does nothing on systems that cannot open a
    directory; they do not need it."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

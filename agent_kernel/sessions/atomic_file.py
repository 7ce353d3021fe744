"""Files that are whole and on the disk before they get their names."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def written(partial: Path, data: bytes, mode: int = 0o600) -> Path:
    """``partial``, made anew with this content, on the disk when this returns: rename it to its place. No link is
    followed, and nothing is left when it fails. Raises OSError."""
    partial.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return partial


def sync_directory(path: Path) -> None:
    """What was renamed into it stays after a power cut. Systems that can not do this do it by themselves."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

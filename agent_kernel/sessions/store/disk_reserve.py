"""Reserves disk space for deletions on a full disk, because a DELETE needs journal space before it frees any."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

RESERVE = 2**20
"""Size of the reserve in bytes. On a small disk it is smaller: at most an eighth of the free space."""


class DiskReserve:
    """A file of zeros beside ``path``. When the disk is full, its space can be released for deletions."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}.reserve")

    def make(self) -> None:
        """Allocate the reserve, as large as the free space permits. Failures are ignored."""
        with suppress(OSError):
            size = min(RESERVE, shutil.disk_usage(self._path.parent).free // 8)
            file = os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                if size > os.fstat(file).st_size:
                    os.posix_fallocate(file, 0, size)
            finally:
                os.close(file)

    def spend(self) -> bool:
        """Release the reserved space to the disk. Returns False if there was none."""
        try:
            size = self._path.stat().st_size
            os.truncate(self._path, 0)
        except OSError:
            return False
        return size > 0

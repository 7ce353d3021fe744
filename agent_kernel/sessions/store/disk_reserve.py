"""Space that is kept for the day on which the disk is full: deleting takes space before it gives any back."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

RESERVE = 2**20
"""Bytes. On a small disk an eighth of the free space."""


class Reserve:
    """A file of nothing beside ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}.reserve")

    def make(self) -> None:
        """As large as there is space for."""
        with suppress(OSError):
            size = min(RESERVE, shutil.disk_usage(self._path.parent).free // 8)
            file = os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                if size > os.fstat(file).st_size:
                    os.posix_fallocate(file, 0, size)
            finally:
                os.close(file)

    def spend(self) -> bool:
        """Gives the space back to the disk; False: there was none."""
        try:
            size = self._path.stat().st_size
            os.truncate(self._path, 0)
        except OSError:
            return False
        return size > 0

"""Creates temporary directories that do not stay if their process is killed."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = "run.lock"
YOUNG_S = 60.0
"""Age in seconds below which a temporary directory is left alone, because its process may not hold the lock yet."""


class ProcessDirectory:
    """A temporary directory of this process that no other user can read, at ``path``. ``close`` removes it.

    The process holds a lock in its directory. The system releases the lock when the process ends, also when it is
    killed. A new directory therefore first removes those of this user with the same prefix whose lock nobody holds.
    """

    def __init__(self, prefix: str) -> None:
        _remove_abandoned(Path(tempfile.gettempdir()), prefix)
        self._directory = tempfile.TemporaryDirectory(prefix=prefix)
        self.path = Path(self._directory.name)
        self._lock = FileLock(self.path / LOCK, thread_local=False)
        self._lock.acquire()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._lock.release()
        self._directory.cleanup()


def _remove_abandoned(parent: Path, prefix: str) -> None:
    for directory in parent.glob(f"{prefix}*"):
        with suppress(OSError, Timeout):  # it has no lock, it was removed meanwhile, or its process holds the lock
            if _is_old(directory.lstat()) and stat.S_ISREG((directory / LOCK).lstat().st_mode):
                with FileLock(directory / LOCK, timeout=0):
                    shutil.rmtree(directory, ignore_errors=True)


def _is_old(status: os.stat_result) -> bool:
    """Return whether this is the status of a directory of this user, not a link, whose process has had the time to
    acquire its lock."""
    is_own = os.name == "nt" or status.st_uid == os.geteuid()
    return stat.S_ISDIR(status.st_mode) and is_own and time.time() - status.st_mtime > YOUNG_S

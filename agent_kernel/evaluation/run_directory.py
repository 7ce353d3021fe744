"""The temporary directory of an evaluation run."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

PREFIX = "agent-kernel-eval-"
LOCK = "run.lock"
YOUNG_S = 60.0
"""Age in seconds below which a directory is left alone, because its run may not hold the lock yet."""


@contextmanager
def run_directory() -> Iterator[Path]:
    """Create the directory of a run and remove it at the end. Directories of killed runs are removed first.

    A run holds a lock in its directory. The system releases the lock when the process ends, so a directory without a
    lock belongs to no running evaluation.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, FileLock(Path(name) / LOCK):
        yield Path(name)


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.glob(f"{PREFIX}*"):
        with suppress(OSError, Timeout):  # it belongs to another user, or its run holds the lock
            if time.time() - directory.lstat().st_mtime > YOUNG_S and not directory.is_symlink():
                with FileLock(directory / LOCK, timeout=0):
                    shutil.rmtree(directory, ignore_errors=True)

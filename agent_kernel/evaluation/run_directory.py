"""The temporary directory of an evaluation run."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "agent-kernel-eval-"
YOUNG_S = 60.0
"""Age in seconds below which a directory is left alone, because its run may not hold the lock yet."""


@contextmanager
def run_directory() -> Iterator[Path]:
    """Create the directory of a run and remove it at the end. Directories of killed runs are removed first.

    A run holds a lock on its directory. The system releases the lock when the process ends, so a directory without a
    lock has no run any more."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, or its run holds the lock
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                facts = os.fstat(descriptor)
                if facts.st_uid == os.getuid() and time.time() - facts.st_mtime > YOUNG_S:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(descriptor)

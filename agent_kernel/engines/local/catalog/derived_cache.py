"""A cache of files that a library derives from a model file once and opens at later loads.

A derived directory is put in place by one rename, so that it is never incomplete; two processes may create it at the
same time.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path


def identity(path: Path) -> str:
    """Return a text that identifies the file's content by path, size and modification time, without reading the file.
    This is possible because a model file is replaced by rename, never edited."""
    facts = path.stat()
    return hashlib.sha256(f"{path.resolve()}|{facts.st_size}|{facts.st_mtime_ns}".encode()).hexdigest()[:16]


def publish(temporary: Path, directory: Path) -> None:
    """Move the files of ``temporary`` to ``directory``, unless another process was first."""
    finished = Path(tempfile.mkdtemp(dir=directory.parent, prefix="finished-"))
    for file in temporary.iterdir():
        file.rename(finished / file.name)
    try:
        finished.rename(directory)
    except OSError:
        shutil.rmtree(finished, ignore_errors=True)

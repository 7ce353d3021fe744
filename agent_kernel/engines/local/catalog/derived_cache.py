"""Files that a library derives from a model file once and opens from then on.

A derived directory appears complete, by one rename, or not at all; two processes may create it at once.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path


def identity(path: Path) -> str:
    """Identify the file's content without reading it: a model file is replaced by rename, never edited."""
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

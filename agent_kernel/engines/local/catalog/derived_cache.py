"""What a library makes of a model file once and opens from then on: where it is kept, and how it appears there.

A preparation appears complete, by one rename, or not at all; two processes may prepare the same file at once.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path


def identity(path: Path) -> str:
    """Names the file's content without reading all of it: a model file is replaced by rename, never edited."""
    facts = path.stat()
    return hashlib.sha256(f"{path.resolve()}|{facts.st_size}|{facts.st_mtime_ns}".encode()).hexdigest()[:16]


def publish(temporary: Path, directory: Path) -> None:
    """Moves the files of ``temporary`` to ``directory``, unless another process was first."""
    finished = Path(tempfile.mkdtemp(dir=directory.parent, prefix="finished-"))
    for file in temporary.iterdir():
        file.rename(finished / file.name)
    try:
        finished.rename(directory)
    except OSError:
        shutil.rmtree(finished, ignore_errors=True)

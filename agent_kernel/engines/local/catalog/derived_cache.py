"""Stores files that a library derives once from a model file and opens in later loads.

A derived directory gets its final name by one rename when it is complete, so that no reader sees an incomplete one. Two
processes may create it at the same time; the result of the first one to finish is used.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path


def identity(path: Path) -> str:
    """Return a text that identifies the file's content by path, size and modification time, without reading the file.
    These suffice because a model file is replaced by a rename and never edited."""
    facts = path.stat()
    return hashlib.sha256(f"{path.resolve()}|{facts.st_size}|{facts.st_mtime_ns}".encode()).hexdigest()[:16]


def publish(temporary: Path, directory: Path) -> None:
    """Move the files of ``temporary`` to ``directory``. If another process has created ``directory`` first, its files
    stay and those of ``temporary`` are removed."""
    finished = Path(tempfile.mkdtemp(dir=directory.parent, prefix="finished-"))
    for file in temporary.iterdir():
        file.rename(finished / file.name)
    try:
        finished.rename(directory)
    except OSError:
        shutil.rmtree(finished, ignore_errors=True)

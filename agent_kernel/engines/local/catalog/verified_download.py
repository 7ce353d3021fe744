"""Verifies downloaded files. Downloads from a hub and from a package index both use this module."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from agent_kernel.core.errors import PullFailed
from agent_kernel.engines.local.catalog.gguf_to_q8_0 import file_hash
from agent_kernel.engines.local.catalog.pull_stages import Progress

T = TypeVar("T")
Steps: TypeAlias = Generator[Progress, None, T]
DOWNLOADED = "source.gguf"
"""Name of the file in a source's staging directory that contains the complete and verified download."""
SHA256 = 64
"""Number of hexadecimal digits of a SHA-256. It distinguishes the hash from git's SHA-1, which has 40."""


class SourceUnavailable(PullFailed):
    """This source cannot provide the file now; another source may be able to."""


@dataclass(frozen=True, slots=True)
class Download:
    path: Path
    sha256: str


def earlier_download(path: Path, expected: str) -> Steps[Download | None]:
    """Return the file that an interrupted run has downloaded completely to ``path``; None if there is none. The file is
    hashed again, since the disk may have damaged it, and removed if its hash is not ``expected``."""
    if not path.is_file():
        return None
    digest = yield from _digest(path, expected)
    if expected and digest != expected:
        path.unlink()
        return None
    return Download(path, digest)


def accept(partial: Path, target: Path, expected: str, file_name: str) -> Steps[Download]:
    """Rename ``partial`` to ``target`` if it has the ``expected`` digest; otherwise remove it and raise PullFailed.
    ``file_name`` is the name of the file in the error."""
    digest = yield from _digest(partial, expected)
    if digest != expected:
        partial.unlink()
        raise wrong_hash(file_name, expected, digest)
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(partial, target)
    return Download(target, digest)


def _digest(path: Path, expected: str) -> Steps[str]:
    """Return the file's digest of the same kind as ``expected``: its SHA-256, or its git blob hash, which is all that a
    hub states for small files."""
    if len(expected) in (0, SHA256):
        return (yield from file_hash(path))
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def wrong_hash(file_name: str, expected: str, actual: str) -> PullFailed:
    return PullFailed(
        f"{file_name} is not the file that was expected: SHA-256 {actual} instead of {expected}. The file was removed.",
        hint="Try again. If this happens again, a proxy changes files, or the source has changed.",
        details={"file": file_name, "expected": expected, "actual": actual},
    )

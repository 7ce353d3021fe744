"""What downloads from a hub and from a package index have in common: a verified file, or why there is none."""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from agent_kernel.core.errors import PullFailed
from agent_kernel.engines.local.catalog.gguf_requantize import file_hash
from agent_kernel.engines.local.catalog.requantize_progress import Progress

T = TypeVar("T")
Steps: TypeAlias = Generator[Progress, None, T]
DOWNLOADED = "source.gguf"
"""A complete and verified download, in the staging directory of its source."""


class SourceUnavailable(PullFailed):
    """This source can not give the file now; another one may."""


@dataclass(frozen=True, slots=True)
class Download:
    path: Path
    sha256: str


def earlier_download(staging: Path, expected: str) -> Steps[Download | None]:
    """What an interrupted run already completed. It is read again, since the disk may have lost it."""
    path = staging / DOWNLOADED
    if not path.is_file():
        return None
    sha256 = yield from file_hash(path)
    if expected and sha256 != expected:
        path.unlink()
        return None
    return Download(path, sha256)


def accept(partial: Path, staging: Path, expected: str, what: str) -> Steps[Download]:
    """Makes ``partial`` the download when it has the expected hash; removes it and raises PullFailed otherwise."""
    sha256 = yield from file_hash(partial)
    if sha256 != expected:
        partial.unlink()
        raise wrong_hash(what, expected, sha256)
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(partial, staging / DOWNLOADED)
    return Download(staging / DOWNLOADED, sha256)


def wrong_hash(what: str, expected: str, actual: str) -> PullFailed:
    return PullFailed(
        f"{what} is not the file that was expected: SHA-256 {actual} instead of {expected}. It was removed.",
        hint="Try again; if it stays so, something between here and the source changes files, or the source changed.",
        details={"file": what, "expected": expected, "actual": actual},
    )

"""Finds the files that code left in its work directory: first the requested files, then files that are new or
changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent_kernel.core import safe_path
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.files import NOT_PRODUCED, ProducedFile, RequestedFile, format_of

SURFACED = 64
"""Maximum number of files of one call that are stored although neither the request nor the call names them."""
WALKED = 20_000
"""Maximum number of directory entries that are searched. In a larger work directory, only files that are requested by
name are found."""
SKIPPED = frozenset({"skills", "__pycache__", "node_modules", "target", "tmp", "temp", "cache", "venv", "env"})
SKIPPED_FORMATS = frozenset({"pyc", "pyo", "o", "so", "dylib", "dll", "rlib", "rmeta", "d", "class"})
Stamps = Mapping[str, tuple[int, int]]
OUTPUTS: Mapping[str, Any] = MappingProxyType(
    {
        "type": "array",
        "description": "Files in the work directory to show to the person, by relative path",
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string", "minLength": 1}, "format": {"type": "string"}},
            "required": ["name"],
            "additionalProperties": False,
        },
    }
)
"""JSON schema of the tool parameter ``outputs``."""


@dataclass(frozen=True, slots=True)
class SurfacedFiles:
    """The files of a run. ``note`` lists for the model which files are missing, and why; it is empty if none is
    missing."""

    files: tuple[ProducedFile, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class WorkdirSnapshot:
    """The state of a work directory before a run.

    ``stamps`` maps file names to (size, mtime in ns), including the files of ``wanted`` (the outputs that the request
    names), in whatever directory they are. ``complete`` is false if the directory has too many files for finding the
    new ones after the run.
    """

    workdir: Path
    wanted: tuple[RequestedFile, ...] = ()
    unasked: bool = True
    stamps: Stamps = field(default_factory=dict)
    complete: bool = True

    @classmethod
    async def take(
        cls, workdir: Path, requested: Sequence[RequestedFile] = (), *, unasked: bool = True
    ) -> WorkdirSnapshot:
        """Take a snapshot in a thread, which takes about 1 ms for 1,000 files. The directory does not have to exist.

        ``requested`` are the outputs that the request names; with ``unasked`` other new files become part of the turn's
        result too (the setting ``surface``).
        """
        return await asyncio.to_thread(cls._take_blocking, workdir, tuple(requested), unasked)

    @classmethod
    def _take_blocking(cls, workdir: Path, requested: tuple[RequestedFile, ...], unasked: bool) -> WorkdirSnapshot:
        files, complete = safe_path.walk(workdir, WALKED, _counts) if unasked else ([], True)
        stamps = {file.name: file.stamp for file in files}
        for requested_file in requested:
            if stamp := safe_path.file_stamp(workdir, requested_file.name):
                stamps[requested_file.path] = stamp
        return cls(workdir, requested, unasked, stamps, complete)

    async def find_outputs(self, declared: Sequence[RequestedFile] = ()) -> SurfacedFiles:
        """Return the files that the run left.

        ``declared`` contains the outputs that the call names; each is included, with the error ``not_produced`` if it
        is missing. They are followed by the new or changed files of ``wanted`` and up to SURFACED other new or changed
        files, sorted by name. Does not raise, whatever the code did to its directory.
        """
        return await asyncio.to_thread(self._find_outputs, tuple(declared))

    def _find_outputs(self, declared: tuple[RequestedFile, ...]) -> SurfacedFiles:
        after = self._take_blocking(self.workdir, self.wanted, self.unasked)
        news = {name for name, stamp in after.stamps.items() if self.stamps.get(name) != stamp}
        requested = [*declared, *(file for file in self.wanted if file.path in news)]
        declared_files = [
            _check_output(self.workdir, one) for one in {file.path: file for file in reversed(requested)}.values()
        ][::-1]
        if not (self.complete and after.complete):
            return SurfacedFiles(
                tuple(declared_files), f"There are more than {WALKED:,} files here: name those to show as outputs."
            )
        others = sorted(news - {file.name for file in declared_files}) if self.unasked else []
        unnamed = [
            ProducedFile(name, self.workdir / name, format_of(name), root=self.workdir) for name in others[:SURFACED]
        ]
        return SurfacedFiles((*declared_files, *unnamed), _describe_omitted(others[SURFACED:]))


def requested_outputs(arguments: Mapping[str, Any]) -> tuple[RequestedFile, ...]:
    """Return the ``outputs`` of a call whose arguments match the schema."""
    return tuple(RequestedFile(name["name"], name.get("format", "")) for name in arguments.get("outputs", ()))


def describe_requested_files(files: Iterable[RequestedFile]) -> str:
    """Return the part of a tool description that lists the requested files; empty if there are none."""
    lines = [_line(file) for file in files]
    return "\n".join(["", "The person wants these files, written to the work directory:", *lines]) if lines else ""


def _line(file: RequestedFile) -> str:
    form = f" ({file.format})" if file.format else ""
    return f"- {file.name}{form}: {file.description}" if file.description else f"- {file.name}{form}"


def _check_output(workdir: Path, requested_file: RequestedFile) -> ProducedFile:
    form = (requested_file.format or format_of(requested_file.name)).lower()
    try:
        os.close(safe_path.open_file(workdir, requested_file.name))
    except (OSError, InvalidRequest):
        return ProducedFile(requested_file.name, format=form, error=NOT_PRODUCED)
    return ProducedFile(requested_file.path, workdir / requested_file.name, form, root=workdir)


def _counts(name: str) -> bool:
    skipped = name.startswith(".") or name in SKIPPED
    return not skipped and format_of(name) not in SKIPPED_FORMATS


def _describe_omitted(names: Sequence[str]) -> str:
    return f"{len(names):,} more new or changed files are not shown: name those to show as outputs." if names else ""

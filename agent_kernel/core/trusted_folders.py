"""Stores which directories a person trusts. Turns use the instructions, skills and MCP servers in these directories.

The list of these directories is stored outside of them, by real path, together with a hash of each ``.mcp.json`` at the
time when the directory was trusted. If such a file has changed, it is no longer trusted, because it contains commands.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from agent_kernel.core.atomic_file import replace_file
from agent_kernel.core.errors import InvalidRequest

WATCHED = (".mcp.json",)
"""Names of the files that are trusted only as long as their content does not change."""
MAX_WATCHED = 1 << 20


@dataclass(frozen=True, slots=True)
class TrustedFolder:
    """A folder that a person trusts. ``since`` is the time of that decision (seconds since the epoch), and ``files``
    maps the names of the WATCHED files in it to their SHA-256 at that time."""

    path: Path
    since: float
    files: Mapping[str, str] = field(default_factory=dict)


class TrustStore:
    """The list of a user's trusted folders. It is stored in the file ``path``, which is created with the first
    folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def folders(self) -> list[TrustedFolder]:
        """Return the trusted folders, sorted by path. If the file is unreadable, the result is empty."""
        listed = []
        for name, entry in self._read().items():
            files = {str(file): str(digest) for file, digest in dict(entry.get("files", {})).items()}
            listed.append(TrustedFolder(Path(name), float(entry.get("since", 0.0)), files))
        return sorted(listed, key=lambda folder: folder.path)

    def trusts(self, folder: Path | None) -> bool:
        """Return whether the folder or one above it is trusted. Blocking: reads the disk."""
        if folder is None:
            return False
        real = Path(os.path.realpath(folder))
        return any(real == trusted.path or trusted.path in real.parents for trusted in self.folders())

    def is_trusted_file(self, folder: Path, name: str, digest: str) -> bool:
        """Return whether ``folder`` itself, not only a folder above it, is trusted, and its file ``name`` had the
        SHA-256 ``digest`` when the folder was added to the list. Blocking."""
        real = Path(os.path.realpath(folder))
        return any(trusted.path == real and trusted.files.get(name) == digest for trusted in self.folders())

    def add(self, folder: Path) -> TrustedFolder:
        """Add a folder to the list, with the hashes of its current files. Raises InvalidRequest for anything but a
        directory, and for the root directory."""
        real = Path(os.path.realpath(folder))
        if not real.is_dir():
            raise InvalidRequest(f"{folder} is not a directory.")
        if real == Path(real.anchor):
            raise InvalidRequest(
                "The root directory cannot be trusted, because it contains the "
                "whole machine. Trust a directory of your own."
            )
        trusted = TrustedFolder(
            real, time.time(), {name: digest for name in WATCHED if (digest := file_digest(real / name))}
        )
        with self._lock():
            body = self._read()
            body[str(real)] = {"since": trusted.since, "files": dict(trusted.files)}
            self._write(body)
        return trusted

    def remove(self, folder: Path) -> bool:
        """Remove a folder from the list. Returns whether the list contained it; False if only a folder above it is
        trusted."""
        with self._lock():
            body = self._read()
            names = {str(folder), os.path.realpath(folder)} & set(body)
            for name in names:
                del body[name]
            if names:
                self._write(body)
        return bool(names)

    def _lock(self) -> FileLock:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return FileLock(f"{self._path}.lock")

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            body = json.loads(self._path.read_text("utf-8"))["folders"]
            return {str(name): dict(entry) for name, entry in body.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _write(self, body: Mapping[str, Any]) -> None:
        text = json.dumps({"version": 1, "folders": body}, indent=1, sort_keys=True)
        replace_file(self._path, text.encode())


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file; empty if it is unreadable or too large."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_WATCHED:
            return ""
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""

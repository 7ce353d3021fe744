"""The files of one sidecar on disk: written whole or not at all, never over something unknown. Blocking."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from agent_kernel.sessions import process

LEFT_OVER = re.compile(r"\.(\d{1,7})(?:\.tmp)?$")
"""Temporary files end with the pid of their writer."""

Outcome: TypeAlias = Literal["unchanged", "written", "conflict"]


@dataclass(frozen=True, slots=True)
class SidecarFile:
    """``main`` is NAME.agent.json; the others are named after it."""

    main: Path
    make_parents: bool = False

    @property
    def bak(self) -> Path:
        return self.main.with_name(self.main.name + ".bak")

    @property
    def conflict(self) -> Path:
        return self.main.with_name(self.main.name.removesuffix(".json") + ".conflict.json")

    @property
    def blobs(self) -> Path:
        """A directory, with one file per large medium, named by its hash."""
        return self.main.with_name(self.main.name.removesuffix(".json"))

    def write(self, body: bytes, blobs: Mapping[str, bytes], known: Callable[[bytes], bool]) -> Outcome:
        """``known`` tells whether what is there may be replaced. Raises OSError; then everything is as it was."""
        present = _read(self.main)
        if present == body:
            return "unchanged"
        conflict = present is not None and not known(present)
        target = self.conflict if conflict else self.main
        if conflict and _read(target) == body:
            return "conflict"
        if self.make_parents:
            self.main.parent.mkdir(parents=True, exist_ok=True)
        self._sweep()
        for name, data in blobs.items():
            self._write_blob(name, data)
        temporary = _write_temporary(target, body)
        try:
            if target == self.main and present is not None:
                self._keep(present)
            temporary.replace(target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        _sync_directory(target.parent)
        return "conflict" if conflict else "written"

    def move(self, new: SidecarFile) -> None:
        """To another name; a sidecar that lies there already stays, and so does this one. Raises OSError."""
        if not self.main.exists() or new.main.exists():
            return
        if new.make_parents:
            new.main.parent.mkdir(parents=True, exist_ok=True)
        for old_path, new_path in ((self.main, new.main), (self.bak, new.bak), (self.blobs, new.blobs)):
            if old_path.exists() and not new_path.exists():
                old_path.rename(new_path)

    def remove(self, known: Callable[[bytes], bool]) -> None:
        """Goes with its notebook, except for what the store does not know. Raises OSError."""
        present = _read(self.main)
        if present is None or not known(present):
            return
        self.main.unlink(missing_ok=True)
        self.bak.unlink(missing_ok=True)
        shutil.rmtree(self.blobs, ignore_errors=True)

    def _sweep(self) -> None:
        """Removes what a writer that was killed left half-written."""
        stem = glob.escape(self.main.name.removesuffix(".json"))
        for path in (*self.main.parent.glob(f".{stem}.*"), *self.blobs.glob(".*.tmp")):
            writer = LEFT_OVER.search(path.name)
            if writer is not None and not process.alive(int(writer[1]), ""):
                path.unlink(missing_ok=True)

    def _write_blob(self, name: str, data: bytes) -> None:
        path = self.blobs / name
        if not path.exists():
            self.blobs.mkdir(exist_ok=True)
            _write_temporary(path, data).replace(path)

    def _keep(self, present: bytes) -> None:
        """A hard link where the file system has them: the sidecar's name is never without a file."""
        spare = self.bak.with_name(f".{self.bak.name}.{os.getpid()}")
        spare.unlink(missing_ok=True)
        try:
            os.link(self.main, spare)
        except OSError:
            _write_temporary(self.bak, present).replace(self.bak)
            return
        spare.replace(self.bak)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write_temporary(target: Path, body: bytes) -> Path:
    """A complete, synced file beside the target, hidden from file browsers; nothing is left when that fails."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _sync_directory(directory: Path) -> None:
    """Makes the rename durable where directories can be opened (not on Windows)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

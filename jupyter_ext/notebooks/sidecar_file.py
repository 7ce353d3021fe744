"""The files of one sidecar on disk: written whole or not at all, never over something unknown. Blocking."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from agent_kernel.core import process_identity
from agent_kernel.sessions import atomic_file

LEFT_OVER = re.compile(r"\.(\d{1,7})(?:\.tmp)?$")
"""Temporary files end with the pid of their writer."""
BLOB = re.compile(r"[0-9a-f]{64}")

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
        """``known`` tells whether what is there may be replaced. Raises OSError; then everything is as it was. Media
        that no document beside the notebook names any more are taken away."""
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
        atomic_file.sync_directory(target.parent)
        self.collect()
        return "conflict" if conflict else "written"

    def move(self, new: SidecarFile) -> None:
        """To another name; a sidecar that lies there already stays, and so does this one. Raises OSError."""
        if not self.main.exists() or new.main.exists():
            return
        if new.make_parents:
            new.main.parent.mkdir(parents=True, exist_ok=True)
        pairs = ((self.main, new.main), (self.bak, new.bak), (self.conflict, new.conflict), (self.blobs, new.blobs))
        for old_path, new_path in pairs:
            if old_path.exists() and not new_path.exists():
                old_path.rename(new_path)

    def remove(self, known: Callable[[bytes], bool]) -> None:
        """Goes with its notebook, except for what the store does not know. Raises OSError."""
        present = _read(self.main)
        if present is None or not known(present):
            return
        self.main.unlink(missing_ok=True)
        self.bak.unlink(missing_ok=True)
        if not self.conflict.exists():
            shutil.rmtree(self.blobs, ignore_errors=True)

    def read(self, max_bytes: int) -> bytes | None:
        """What lies there; None for nothing. Raises OSError, also for more than ``max_bytes``."""
        if self.main.exists() and self.main.stat().st_size > max_bytes:
            raise OSError(errno.EFBIG, "is too large", str(self.main))
        return _read(self.main)

    def forget_bak(self) -> None:
        """The version before holds what was to be forgotten. Raises OSError."""
        self.bak.unlink(missing_ok=True)
        self.collect()

    def files(self, wanted: Collection[str], max_bytes: int) -> dict[str, bytes]:
        """Media beside the document, by their hash; none that would make it more than ``max_bytes``, and no link."""
        found: dict[str, bytes] = {}
        if self.blobs.is_symlink():
            return found
        for name in wanted:
            path = self.blobs / name
            if BLOB.fullmatch(name) is None or path.is_symlink() or not path.is_file():
                continue
            max_bytes -= path.stat().st_size
            if max_bytes < 0:
                break
            found[name] = path.read_bytes()
        return found

    def collect(self) -> None:
        """Takes away media that neither the document nor its earlier or conflicting version names."""
        if not self.blobs.is_dir() or self.blobs.is_symlink():
            return
        documents = [_read(path) or b"" for path in (self.main, self.bak, self.conflict)]
        for path in self.blobs.iterdir():
            if BLOB.fullmatch(path.name) and not any(path.name.encode() in document for document in documents):
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.blobs.rmdir()  # only when nothing is left

    def _sweep(self) -> None:
        """Removes what a writer that was killed left half-written."""
        stem = glob.escape(self.main.name.removesuffix(".json"))
        for path in (*self.main.parent.glob(f".{stem}.*"), *self.blobs.glob(".*.tmp")):
            writer = LEFT_OVER.search(path.name)
            if writer is not None and not process_identity.is_alive(int(writer[1]), ""):
                path.unlink(missing_ok=True)

    def _write_blob(self, name: str, data: bytes) -> None:
        path = self.blobs / name
        if self.blobs.is_symlink():
            raise OSError(errno.EINVAL, "is a link: nothing is written through it", str(self.blobs))
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
        spare.unlink(missing_ok=True)  # where both are links to one file, after a kill, renaming does nothing


def _read(path: Path) -> bytes | None:
    """Of a plain file; a pipe or a device would never end. Raises OSError."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "is no plain file", str(path))
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write_temporary(target: Path, body: bytes) -> Path:
    """Beside the target, hidden from file browsers; as readable as other files of the person."""
    return atomic_file.write_synced(target.with_name(f".{target.name}.{os.getpid()}.tmp"), body, 0o666)

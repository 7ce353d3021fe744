"""Every place on this machine where agent-kernel keeps something, and the traces of one conversation among them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_kernel.core.session import Bound, SessionKey
from agent_kernel.core.settings import OFF, Settings

NOTEBOOK = ".ipynb"
DELETED = "deleted:"
"""How the path of a notebook that was deleted begins: ``deleted:ID/path``."""
KERNEL = "kernel:"


@dataclass(frozen=True, slots=True)
class Place:
    """``kind`` is a word for programs. ``holds`` tells people what is there; ``private`` that it holds something of a
    conversation."""

    kind: str
    path: Path
    holds: str
    private: bool = True

    @property
    def exists(self) -> bool:
        return self.path.is_symlink() or self.path.exists()

    @property
    def bytes(self) -> int:
        return size_of(self.path)


def places(settings: Settings, bound: Iterable[Bound] = ()) -> list[Place]:
    """Those that are there. ``bound``: the store's bindings, which know where sidecars lie."""
    data, cache = settings.data_dir, settings.cache_dir
    found = [
        Place("store", data / "sessions.db", "conversations"),
        Place("store", data / "sessions.db-wal", "conversations, written last"),
        Place("store", data / "sessions.db-shm", "index of the journal"),
        Place("store", data / "sessions.db.reserve", "space with which a conversation is deleted on a full disk"),
        Place("media", data / "sessions.db.blobs", "pictures and files of conversations"),
        Place("store", data / "sessions", "conversations of the store 'files'"),
        *(Place("backup", path, "conversations as they were before an upgrade") for path in _backups(data)),
        Place("work", data / "work", "files that code of agents made"),
        Place("sidecars", data / "transcripts", "conversations beside no notebook (export = data_dir)"),
        Place("choices", data / "engines", "which model a conversation talks to"),
        Place("skills", settings.skills_path, "skills that turns may be given", private=False),
        Place("settings", settings.trust_path, "folders that are trusted", private=False),
        Place("settings", settings.tokens_path, "hashes of lasting tokens", private=False),
        Place("environments", data / "environments", "libraries of model workers", private=False),
    ]
    if settings.transcripts.lower() not in ("", *OFF):
        found.append(Place("transcripts", Path(settings.transcripts).expanduser(), "live transcripts"))
    found += [Place("sidecar", path, "a conversation, beside its notebook") for path in sidecars(bound)]
    found += [
        Place("cache", cache / "models", "models", private=False),
        Place("cache", cache / "openvino", "models as they were built", private=False),
        Place("cache", cache / "transformers", "models as they were converted", private=False),
    ]
    return [place for place in found if place.exists]


def _backups(data: Path) -> list[Path]:
    return sorted(data.glob("sessions.db.bak-v*"))


def sidecars(bound: Iterable[Bound]) -> Iterator[Path]:
    """Of notebooks that are, or were, bound to a session."""
    seen: set[Path] = set()
    for binding in bound:
        if (notebook := notebook_of(binding)) is not None:
            for path in beside(notebook):
                if path not in seen and (path.is_symlink() or path.exists()):
                    seen.add(path)
                    yield path


def notebook_of(binding: Bound) -> Path | None:
    """None for a kernel without one."""
    path = binding.path
    if path.startswith(DELETED):
        path = path.partition("/")[2]
    return Path(binding.root) / path if path.endswith(NOTEBOOK) and not path.startswith(KERNEL) else None


def beside(notebook: Path) -> list[Path]:
    """What the server keeps beside a notebook: the sidecar, the one before, one that is in conflict, large media."""
    stem = notebook.name.removesuffix(NOTEBOOK)
    names = (".agent.json", ".agent.json.bak", ".agent.conflict.json", ".agent")
    return [notebook.with_name(stem + name) for name in names]


def in_data_dir(settings: Settings, binding: Bound) -> list[Path]:
    """The same for ``export = data_dir``, where roots are kept apart by their hash."""
    notebook = notebook_of(binding)
    if notebook is None:
        return []
    root = hashlib.sha256(binding.root.encode()).hexdigest()[:16]
    return beside(settings.data_dir / "transcripts" / root / notebook.relative_to(binding.root))


def of_session(settings: Settings, key: SessionKey) -> list[Path]:
    """What is kept of a session beside the store and the notebooks: its work directory, its model, its transcript."""
    work = hashlib.sha256(json.dumps([key.namespace, key.id]).encode()).hexdigest()[:32]
    choice = hashlib.sha256(f"{len(key.namespace)} {key.namespace}{key.id}".encode()).hexdigest()[:32]
    return [settings.data_dir / "work" / work, settings.data_dir / "engines" / f"{choice}.json"]


def size_of(path: Path) -> int:
    """Bytes of a file, or of everything below a directory; links are not followed. What vanishes meanwhile is 0."""
    try:
        if path.is_symlink() or not path.is_dir():
            return path.lstat().st_size
        with os.scandir(path) as entries:
            return sum(size_of(Path(entry.path)) for entry in entries)
    except OSError:
        return 0

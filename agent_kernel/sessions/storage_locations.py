"""Lists every location on this machine where agent-kernel stores data, and the files that belong to one
conversation."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_kernel.core.session import NotebookBinding, SessionKey
from agent_kernel.core.settings import Settings

NOTEBOOK = ".ipynb"
DELETED = "deleted:"
"""Prefix of the path in the binding of a deleted notebook: ``deleted:ID/path``."""
KERNEL = "kernel:"
SIDECAR, SIDECAR_BAK, SIDECAR_CONFLICT = ".agent.json", ".agent.json.bak", ".agent.conflict.json"
"""What the names of a sidecar, of its previous version and of a conflicting version add to the notebook's name."""
MAX_NAME_BYTES = 255
SIDECAR_BACKUPS = "sidecar_backups"
"""Name of the directory below the data directory that holds the previous version of each sidecar."""


@dataclass(frozen=True, slots=True)
class StorageLocation:
    """A file or directory in which agent-kernel stores data. ``kind`` is a code for programs, ``holds`` describes the
    content for people, and ``private`` is true for data of conversations."""

    kind: str
    path: Path
    holds: str
    private: bool = True

    @property
    def exists(self) -> bool:
        return self.path.is_symlink() or self.path.exists()

    @property
    def bytes(self) -> int:
        return disk_usage(self.path)


def existing_locations(settings: Settings, bound: Iterable[NotebookBinding] = ()) -> list[StorageLocation]:
    """Return the locations that exist. ``bound`` are the bindings in the store, by which the sidecars of notebooks are
    found."""
    data, cache = settings.data_dir, settings.cache_dir
    backups, responses = sorted(data.glob("sessions.db.bak-v*")), sorted(data.glob("responses.db*"))
    locations = [
        StorageLocation("store", data / "sessions.db", "conversations"),
        StorageLocation("store", data / "sessions.db-wal", "conversations, latest changes"),
        StorageLocation("store", data / "sessions.db-shm", "index of the latest changes"),
        StorageLocation(
            "store", data / "sessions.db.reserve", "space reserved for deleting conversations on a full disk"
        ),
        StorageLocation("media", data / "sessions.db.blobs", "pictures and files of conversations"),
        StorageLocation("store", data / "sessions", "conversations of the store 'files'"),
        *(StorageLocation("backup", path, "conversations as they were before an upgrade") for path in backups),
        *(StorageLocation("responses", path, "input and answers of the Responses API") for path in responses),
        StorageLocation("history", data / "chat_history", "prompts that you typed in agent-kernel chat"),
        StorageLocation("work", data / "work", "files created by code that the agent ran"),
        StorageLocation("work", data / "incoming", "files that are being uploaded"),
        StorageLocation("sidecars", data / "transcripts", "conversations of notebooks (export = data_dir)"),
        StorageLocation("sidecars", data / SIDECAR_BACKUPS, "previous versions of the conversations beside notebooks"),
        StorageLocation("choices", data / "engines", "the model that each conversation uses"),
        StorageLocation("skills", settings.skills_path, "installed skills", private=False),
        StorageLocation("settings", settings.trust_path, "list of trusted folders", private=False),
        StorageLocation("settings", data / "model_servers.json", "model servers that you added", private=False),
        StorageLocation("settings", data / "model_server_keys", "keys of model servers", private=False),
        StorageLocation("settings", settings.tokens_path, "hashes of API tokens", private=False),
        StorageLocation("settings", data / "serve-token", "token of agent-kernel serve", private=False),
        StorageLocation("limits", data / "requests.db", "tokens spent, and keys of repeated requests", private=False),
        StorageLocation("environments", data / "environments", "libraries of model workers", private=False),
    ]
    if (transcripts := settings.transcripts_path) is not None:
        locations.append(StorageLocation("transcripts", transcripts, "live transcripts"))
    locations += [
        StorageLocation("sidecar", path, "a conversation, beside its notebook") for path in existing_sidecars(bound)
    ]
    locations += [
        StorageLocation("cache", cache / "models", "models", private=False),
        StorageLocation("cache", cache / "openvino", "compiled models", private=False),
        StorageLocation("cache", cache / "transformers", "converted models", private=False),
    ]
    return [place for place in locations if place.exists]


def existing_sidecars(bound: Iterable[NotebookBinding]) -> Iterator[Path]:
    """Yield the existing sidecar files of notebooks that are, or were, bound to a session."""
    seen: set[Path] = set()
    for binding in bound:
        if (notebook := notebook_path(binding)) is not None:
            for path in sidecar_paths(notebook):
                if path not in seen and (path.is_symlink() or path.exists()):
                    seen.add(path)
                    yield path


def notebook_path(binding: NotebookBinding) -> Path | None:
    """Return the path of the bound notebook; None for a kernel without a notebook."""
    path = binding.path
    if path.startswith(DELETED):
        path = path.partition("/")[2]
    return Path(binding.root) / path if path.endswith(NOTEBOOK) and not path.startswith(KERNEL) else None


def sidecar_paths(notebook: Path) -> list[Path]:
    """Return the paths of the files that the server keeps beside a notebook: the sidecar, a backup that earlier
    releases wrote, a conflicting version, and a directory of large media."""
    stem = notebook.name.removesuffix(NOTEBOOK)
    suffixes = (SIDECAR, SIDECAR_BAK, SIDECAR_CONFLICT, ".agent")
    return [notebook.with_name(sidecar_name(stem, suffix)) for suffix in suffixes]


def sidecar_name(stem: str, suffix: str) -> str:
    """Return ``stem`` with ``suffix``, as the name of a file beside the notebook.

    A file system does not allow names of more than MAX_NAME_BYTES bytes, so the end of a longer stem is replaced by its
    hash. The sidecar itself is never shortened, because it has to be recognised by its notebook's name."""
    if suffix == SIDECAR or len(os.fsencode(stem + suffix)) <= MAX_NAME_BYTES:
        return stem + suffix
    suffix = f"-{hashlib.sha256(os.fsencode(stem)).hexdigest()[:16]}{suffix}"
    return os.fsencode(stem)[: MAX_NAME_BYTES - len(suffix)].decode(errors="ignore") + suffix


def data_dir_sidecar_paths(settings: Settings, binding: NotebookBinding) -> list[Path]:
    """Return the paths of a notebook's sidecar files if the setting ``export`` is ``data_dir``. There is one directory
    for each contents root, named by a hash of the root."""
    notebook = notebook_path(binding)
    if notebook is None:
        return []
    root = settings.data_dir / "transcripts" / contents_root_name(binding.root)
    return sidecar_paths(root / notebook.relative_to(binding.root))


def sidecar_backup_paths(settings: Settings, notebook: Path) -> list[Path]:
    """Return the paths at which the previous version of a notebook's sidecar can be, one for each directory that may
    be the contents root."""
    return [
        sidecar_paths(settings.data_dir / SIDECAR_BACKUPS / contents_root_name(str(root)) / notebook.relative_to(root))[
            0
        ]
        for root in notebook.parents
    ]


def contents_root_name(root: str) -> str:
    """Return the name that a directory below the data directory has for the files of one contents root: a hash of
    ``root``."""
    return hashlib.sha256(root.encode()).hexdigest()[:16]


def session_paths(settings: Settings, key: SessionKey) -> list[Path]:
    """Return the files of a session outside the store and the notebooks: its work directory, and the file that names
    its chosen model."""
    work = hashlib.sha256(json.dumps([key.namespace, key.id]).encode()).hexdigest()[:32]
    choice = hashlib.sha256(f"{len(key.namespace)} {key.namespace}{key.id}".encode()).hexdigest()[:32]
    return [settings.data_dir / "work" / work, settings.data_dir / "engines" / f"{choice}.json"]


def disk_usage(path: Path) -> int:
    """Return the size of a file, or of everything below a directory, in bytes.

    Links are not followed. A file that is deleted in the meantime counts as 0.
    """
    try:
        if path.is_symlink() or not path.is_dir():
            return path.lstat().st_size
        with os.scandir(path) as entries:
            return sum(disk_usage(Path(entry.path)) for entry in entries)
    except OSError:
        return 0

"""Describes a model that can be downloaded, and the sources from which it can be downloaded."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from agent_kernel.engines.local.catalog.installed_model import LocalModel, Protocol, models_dir, read_model

KINDS = ("hub", "wheels")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One GGUF file of a model hub. ``sha256`` is empty if only the hub knows the hash; ``size`` is in bytes, 0 if
    unknown."""

    kind: ClassVar[str] = "hub"
    repo: str
    file: str
    revision: str
    size: int
    sha256: str
    publisher: str
    vouched: bool
    why: str

    @property
    def label(self) -> str:
        return f"{self.repo}/{self.file} at {self.revision[:12]}"

    @property
    def download(self) -> int:
        return self.size

    @property
    def key(self) -> str:
        return (self.sha256 or hashlib.sha256(self.label.encode()).hexdigest())[:12]


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One file of a snapshot. ``digest`` is the hash that the hub states: a SHA-256, or git's SHA-1 for a small
    file."""

    path: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class HubSnapshot:
    """The files of one revision of a hub repository that form a model directory; ``revision`` is its commit."""

    kind: ClassVar[str] = "hub"
    sha256: ClassVar[str] = ""
    repo: str
    revision: str
    files: tuple[SnapshotFile, ...]
    publisher: str
    vouched: bool
    why: str

    @property
    def label(self) -> str:
        return f"{self.repo} at {self.revision[:12]}, {len(self.files)} files"

    @property
    def download(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def key(self) -> str:
        return self.revision[:12]


@dataclass(frozen=True, slots=True)
class WheelPart:
    """A Python package that contains the GGUF file, or a part of it, as ``member``; ``size`` and ``sha256`` are those
    of the wheel."""

    package: str
    version: str
    member: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Wheels:
    """Python wheels that contain the parts of one GGUF file. The parts, joined in order, have ``size`` bytes and the
    SHA-256 ``sha256``."""

    kind: ClassVar[str] = "wheels"
    parts: tuple[WheelPart, ...]
    size: int
    sha256: str
    publisher: str
    vouched: bool
    why: str

    @property
    def label(self) -> str:
        first, last = self.parts[0], self.parts[-1]
        return f"{first.package} {first.version}" if first == last else f"{first.package} .. {last.package}"

    @property
    def download(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def key(self) -> str:
        return self.sha256[:12]


Source: TypeAlias = HubFile | HubSnapshot | Wheels


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A model that can be downloaded. ``installed`` is the size in bytes that it occupies on the disk after the
    download. ``sources`` are tried in their order. ``slug`` is the name of the model's folders if they are not named
    after ``name``. The model can be the default of a machine whose total memory is at least ``memory`` bytes."""

    name: str
    title: str
    description: str
    licence: str
    licence_from: str
    protocol: Protocol
    context_length: int
    installed: int
    sources: tuple[Source, ...]
    slug: str = ""
    memory: int = 0

    @property
    def folder(self) -> str:
        return self.slug or self.name

    def directory(self, source: Source, cache_dir: Path) -> Path:
        return models_dir(cache_dir) / f"{self.folder}-{source.key}"

    def installed_model(self, cache_dir: Path) -> LocalModel | None:
        """Return the model from the cache, whichever source it was pulled from; None if it was not pulled. Raises
        ModelBroken."""
        installed = (read_model(self.directory(source, cache_dir)) for source in self.sources)
        return next((model for model in installed if model is not None), None)

    def offer(self) -> dict[str, Any]:
        """Return the data that the user sees before a download: name, licence, publisher, sizes in bytes, and
        sources."""
        first = self.sources[0]
        return {
            "name": self.name,
            "title": self.title,
            "licence": self.licence,
            "licence_from": self.licence_from,
            "publisher": first.publisher,
            "source": first.label,
            "download_bytes": first.download,
            "disk_bytes": self.installed,
            "sources": [source_to_json(source) for source in self.sources],
        }


def source_to_json(source: Source) -> dict[str, Any]:
    return {
        "kind": source.kind,
        "label": source.label,
        "publisher": source.publisher,
        "vouched": source.vouched,
        "why": source.why,
        "sha256": source.sha256,
        "download_bytes": source.download,
    }


def find_pulled(slug: str, cache_dir: Path) -> Iterator[Path]:
    """Yield the folders in the cache that belong to ``slug``, the folder name of a hub id, newest first. If ``slug`` is
    ``hub``, yield the folders of all models from hubs."""
    name = re.compile(re.escape(slug) + ("--.+" if slug == "hub" else "") + "-[0-9a-f]{12}")
    folders = [path for path in models_dir(cache_dir).glob(f"{slug}-*") if name.fullmatch(path.name)]
    yield from sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)

"""The models that have a name here, and which file on this disk a model's name or path stands for.

Fetching is ``pull.py``. The names, sources and hashes, with reasons, are in ``catalog.toml``.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from agent_kernel.engines.local.local_file import open_local
from agent_kernel.engines.local.model import LocalModel, Protocol, models_dir, protocol, read_model
from agent_kernel.engines.local.progress import Progress, megabytes
from agent_kernel.errors import ModelBroken, ModelMissing, UnknownModel

CATALOG = Path(__file__).with_name("catalog.toml")
KINDS = ("hub", "wheels")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One GGUF file of a model hub. ``sha256`` is empty when only the hub can tell it; ``size`` 0 = unknown."""

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
class Part:
    """A Python package that carries the GGUF file or a part of it as ``member``; ``size`` and ``sha256`` of the
    wheel."""

    package: str
    version: str
    member: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Wheels:
    """Packages whose members, joined in order, are one GGUF file of ``size`` bytes with hash ``sha256``."""

    kind: ClassVar[str] = "wheels"
    parts: tuple[Part, ...]
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


Source: TypeAlias = HubFile | Wheels


@dataclass(frozen=True, slots=True)
class Entry:
    """``installed`` is the size in bytes of the Q8_0 file that stays on the disk. ``sources`` in the order they are
    tried."""

    name: str
    title: str
    description: str
    licence: str
    licence_from: str
    protocol: Protocol
    context_length: int
    installed: int
    sources: tuple[Source, ...]

    def directory(self, source: Source, cache_dir: Path) -> Path:
        return models_dir(cache_dir) / f"{self.name}-{source.key}"

    def installed_model(self, cache_dir: Path) -> LocalModel | None:
        """From whichever source it came; None when it was not pulled yet. Raises ModelBroken."""
        here = (read_model(self.directory(source, cache_dir)) for source in self.sources)
        return next((model for model in here if model is not None), None)

    def offer(self) -> dict[str, Any]:
        """What a person is told before a download."""
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


def catalog() -> Mapping[str, Entry]:
    """The entries by name. Raises ModelBroken when the data file is not what this version reads."""
    return read_catalog(CATALOG)


@cache
def read_catalog(path: Path) -> Mapping[str, Entry]:
    try:
        with path.open("rb") as file:
            return {name: _entry(name, body) for name, body in tomllib.load(file).items()}
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise ModelBroken(f"The model catalog {path} can not be read: {error!r}.", hint="Reinstall.") from error


def entry(name: str) -> Entry:
    """Raises UnknownModel, which names what there is and the closest match."""
    known = catalog()
    if name in known:
        return known[name]
    titles = {found.title: found.name for found in known.values()}
    if name in titles:
        return known[titles[name]]
    close = difflib.get_close_matches(name, [*known, *titles], n=1, cutoff=0.5)
    guess = f" Did you mean {close[0]}?" if close else ""
    raise UnknownModel(
        f"There is no model {name!r}.{guess}",
        hint=f"Known: {', '.join(known)}; or give the path of a GGUF file.",
        details={"known": list(known), "closest": close[0] if close else None},
    )


def resolve(model: str, cache_dir: Path, on_progress: Callable[[Progress], None] = lambda progress: None) -> LocalModel:
    """The file for a catalog name or the path of a GGUF file, ready to load.

    A file whose quantisation can not be read exactly is rewritten once into ``cache_dir``, which takes a while:
    ``on_progress`` gets a ``Progress`` now and then. Blocking. Raises UnknownModel, ModelMissing (known, not pulled;
    ``details`` are ``Entry.offer``), ModelBroken.
    """
    if is_path(model):
        return open_local(Path(model).expanduser().absolute(), cache_dir, on_progress)
    found = entry(model)
    model_here = found.installed_model(cache_dir)
    if model_here is None:
        raise ModelMissing(
            f"The model {found.name} ({found.title}) is not on this machine: {megabytes(found.sources[0].download)} "
            f"to download, licence {found.licence}, from {found.sources[0].publisher}.",
            hint=f"Run: agent-kernel model pull {found.name}",
            details=found.offer(),
        )
    return model_here


def is_path(model: str) -> bool:
    """A catalog name never looks like a path: no separator, no ~, no .gguf."""
    return model.startswith(("~", ".")) or model.endswith(".gguf") or "/" in model or "\\" in model


def _entry(name: str, body: Mapping[str, Any]) -> Entry:
    known = {"title", "description", "licence", "licence_from", "protocol", "context_length", "installed", "sources"}
    if set(body) != known:
        raise ValueError(f"{name}: {sorted(set(body) ^ known)} missing or unknown")
    if not body["sources"]:
        raise ValueError(f"{name} has no source")
    fields = dict(body) | {
        "protocol": protocol(body["protocol"]),
        "sources": tuple(_source(source) for source in body["sources"]),
    }
    return Entry(name=name, **fields)


def _source(body: Mapping[str, Any]) -> Source:
    fields: dict[str, Any] = {key: value for key, value in body.items() if key != "kind"}
    if body["kind"] == HubFile.kind:
        known = {"sha256": _sha256(fields["sha256"])} if "sha256" in fields else {"sha256": ""}
        return HubFile(**{"size": 0} | fields | known)
    if body["kind"] == Wheels.kind:
        parts = tuple(Part(**part | {"sha256": _sha256(part["sha256"])}) for part in fields["parts"])
        return Wheels(**fields | {"parts": parts, "sha256": _sha256(fields["sha256"])})
    raise ValueError(f"kind is one of {', '.join(KINDS)}, not {body['kind']!r}")


def _sha256(value: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(f"{value!r} is not a SHA-256 in hex")
    return value

"""Describes a model on this machine's disk, and reads and writes its record in the cache.

A folder of the cache contains ``model.gguf``, or the directory ``snapshot``, and ``model.json``. The folder gets its
final name by one rename when it is complete, so that no reader sees an incomplete one.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from agent_kernel.core.errors import ModelBroken
from agent_kernel.engines.local.catalog.gguf_header import read_header
from agent_kernel.engines.local.catalog.model_directory import read_model_directory

Protocol: TypeAlias = Literal["fence", "native", "auto"]
PROTOCOLS: tuple[Protocol, ...] = ("fence", "native", "auto")
ASSUMED: Protocol = "auto"
"""Tool protocol of a model that is not in the catalog."""
MODEL_FILE = "model.gguf"
SNAPSHOT = "snapshot"
RECORD_FILE = "model.json"


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that can be loaded: a GGUF file, or a directory in the format in which its library saves it. ``revision``
    identifies its content (for a file, it is the SHA-256). ``context_length`` is in tokens, 0 if unknown. ``source``
    describes where the model came from."""

    name: str
    path: Path
    revision: str
    protocol: Protocol
    context_length: int
    licence: str
    source: str


def models_dir(cache_dir: Path) -> Path:
    return cache_dir / "models"


def protocol(value: str) -> Protocol:
    """Return ``value`` if it is the name of a tool protocol. Raises ValueError otherwise."""
    if value not in PROTOCOLS:
        raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, not {value!r}")
    return value


def size_of(path: Path) -> int:
    """Return the size in bytes of a model's file, or of all files of its directory."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    return path.stat().st_size


def write_record(directory: Path, model: LocalModel, **facts: Any) -> None:
    """Write ``model.json`` beside the model and flush it to the disk. ``facts`` are additional fields, stored for
    information only."""
    record = {
        "name": model.name,
        "sha256": model.revision,
        "size": size_of(directory / model.path.name),
        "protocol": model.protocol,
        "context_length": model.context_length,
        "licence": model.licence,
        "source": model.source,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
    }
    with (directory / RECORD_FILE).open("w", encoding="utf-8") as file:
        json.dump(record, file, indent=2)
        file.flush()
        os.fsync(file.fileno())


def read_model(directory: Path) -> LocalModel | None:
    """Return the model in a cache directory, or None if the directory does not exist. Raises ModelBroken if the record
    or the model is missing, or the size differs from the recorded one. The hash is not checked again."""
    if not directory.is_dir():
        return None
    path = directory / (SNAPSHOT if (directory / SNAPSHOT).is_dir() else MODEL_FILE)
    try:
        record: Mapping[str, Any] = json.loads((directory / RECORD_FILE).read_text(encoding="utf-8"))
        size, status, expected = size_of(path), path.stat(), int(record["size"])
        model = LocalModel(
            name=str(record["name"]),
            path=path,
            revision=str(record["sha256"]),
            protocol=protocol(record["protocol"]),
            context_length=int(record["context_length"]),
            licence=str(record["licence"]),
            source=str(record["source"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelBroken(f"{directory} is damaged: {error!r}.", hint=_pull_again_hint(directory)) from error
    if size != expected:
        raise ModelBroken(f"{path} has {size} of {expected} bytes.", hint=_pull_again_hint(directory))
    if path.is_dir():
        read_model_directory(path)
    else:
        _check_header(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    return model


@functools.lru_cache(maxsize=16)
def _check_header(path: Path, status: tuple[int, ...]) -> None:
    """Raise ModelBroken if the header of the file is damaged. ``status`` is different after each change of the file. As
    long as it is the same, the file is read once: that takes 40 ms, and the start of a server asks several times which
    models are installed."""
    read_header(path)


def _pull_again_hint(directory: Path) -> str:
    return f"Remove {directory} and pull the model again."

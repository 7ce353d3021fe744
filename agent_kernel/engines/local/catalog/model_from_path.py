"""Opens the model at a path. A model directory is used in place. A GGUF file that cannot be read exactly is rewritten
once into the cache.

A file's hash is stored by path, size and modification time, so that a large file is not read again at every start.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import filelock

from agent_kernel.core.atomic_file import replace_file
from agent_kernel.core.errors import ModelBroken, UnknownModel
from agent_kernel.engines.local.catalog.gguf_header import read_header
from agent_kernel.engines.local.catalog.gguf_to_q8_0 import file_hash, needs_rewrite, rewrite
from agent_kernel.engines.local.catalog.installed_model import (
    ASSUMED,
    MODEL_FILE,
    LocalModel,
    models_dir,
    read_model,
    write_record,
)
from agent_kernel.engines.local.catalog.model_directory import identity, read_model_directory
from agent_kernel.engines.local.catalog.pull_stages import Progress, megabytes
from agent_kernel.engines.local.catalog.verified_download import Steps, T


def open_local(path: Path, cache_dir: Path, on_progress: Callable[[Progress], None]) -> LocalModel:
    """Return the model at ``path``, which is absolute. Raises UnknownModel if the path does not exist,
    ModelBroken if the model is unusable."""
    if path.is_dir():
        facts = read_model_directory(path)
        return LocalModel(path.name, path, identity(path), ASSUMED, facts.context_length, facts.licence, str(path))
    if not path.is_file():
        raise UnknownModel(
            f"There is no model file {path}.",
            hint="Give the path of a GGUF file or a model's directory, a catalog name, or an id of a hub (org/name).",
        )
    header = read_header(path)
    sha256 = _drain(_cached_hash(path, cache_dir), on_progress)
    model = LocalModel(path.stem, path, sha256, ASSUMED, header.context_length, header.licence, str(path))
    if not needs_rewrite(header):
        return model
    return _drain(_rewrite_once(model, cache_dir), on_progress)


def _drain(steps: Steps[T], on_progress: Callable[[Progress], None]) -> T:
    while True:
        try:
            on_progress(next(steps))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # StopIteration.value is untyped


def _cached_hash(path: Path, cache_dir: Path) -> Steps[str]:
    """Return the SHA-256 of the file. If its size and modification time are those that an earlier run stored, return
    the stored hash without reading the file."""
    stat = path.stat()
    identity = f"{path}|{stat.st_size}|{stat.st_mtime_ns}"
    note = models_dir(cache_dir) / "local" / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
    try:
        stored = json.loads(note.read_text(encoding="utf-8"))
        if stored["identity"] == identity:
            return str(stored["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # the file is new, or the note is damaged: read the file
    sha256 = yield from file_hash(path)
    note.parent.mkdir(parents=True, exist_ok=True)
    replace_file(note, json.dumps({"identity": identity, "sha256": sha256}).encode(), mode=0o666)
    return sha256


def _rewrite_once(model: LocalModel, cache_dir: Path) -> Steps[LocalModel]:
    """Return the Q8_0 copy in the cache, and create it if it does not exist. Only one process creates it; others wait
    for that process."""
    final = models_dir(cache_dir) / f"rewritten-{model.revision[:12]}"
    staging = final.with_name(f".{final.name}.new")
    final.parent.mkdir(parents=True, exist_ok=True)
    yield Progress("wait", note=f"another process may be rewriting {model.path}")
    with filelock.FileLock(str(final) + ".lock"):
        if (ready := read_model(final)) is not None:
            # The copy may have been made for another path with the same content.
            return replace(ready, name=model.name, source=model.source)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        try:
            yield from rewrite(model.path, staging / MODEL_FILE)
            sha256 = yield from file_hash(staging / MODEL_FILE)
            copy = replace(model, path=final / MODEL_FILE, revision=sha256)
            write_record(staging, copy, rewritten_from=model.revision)
            os.replace(staging, final)
        except OSError as error:
            needed = megabytes(model.path.stat().st_size * 2)
            raise ModelBroken(
                f"{model.path} could not be rewritten as Q8_0 into {final.parent}: {error.strerror or error}.",
                hint=f"The copy needs up to {needed} there. To use another directory, set AGENT_KERNEL_CACHE_DIR.",
            ) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return copy

"""Reads the catalog of named models, and finds a local model by name, path or hub id.

Downloads are in ``pull.py``. The names, sources and hashes, with reasons, are in ``catalog.toml``.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import filelock

from agent_kernel.core.atomic_file import replace_file
from agent_kernel.core.errors import ModelBroken, ModelMissing, PullFailed, UnknownModel
from agent_kernel.engines.local.catalog.catalog_entry import (
    KINDS,
    CatalogEntry,
    HubFile,
    Source,
    WheelPart,
    Wheels,
    find_pulled,
)
from agent_kernel.engines.local.catalog.gguf_header import read_header
from agent_kernel.engines.local.catalog.gguf_to_q8_0 import file_hash, needs_rewrite, rewrite
from agent_kernel.engines.local.catalog.hub_id import HubId
from agent_kernel.engines.local.catalog.hub_listing import hub_entry
from agent_kernel.engines.local.catalog.installed_model import (
    ASSUMED,
    MODEL_FILE,
    LocalModel,
    models_dir,
    protocol,
    read_model,
    write_record,
)
from agent_kernel.engines.local.catalog.model_directory import identity, read_model_directory
from agent_kernel.engines.local.catalog.pull_stages import Progress, megabytes
from agent_kernel.engines.local.catalog.verified_download import Steps, T
from agent_kernel.engines.local.system_memory import Memory, read_memory

DEFAULT = "default"
"""The name that stands for the first model in DEFAULTS that suits this machine."""
DEFAULTS = ("coder-1.5b", "coder-0.5b")
"""The default models, best first. Of 60 notebook tasks coder-1.5b solved 51 and coder-0.5b 39 (``agent-kernel eval
notebook``)."""
CATALOG = Path(__file__).with_name("catalog.toml")


def catalog() -> Mapping[str, CatalogEntry]:
    """Return the entries of the catalog by name. Raises ModelBroken if this version of agent-kernel cannot read the
    catalog's data file."""
    return read_catalog(CATALOG)


@cache
def read_catalog(path: Path) -> Mapping[str, CatalogEntry]:
    try:
        with path.open("rb") as file:
            return {name: _entry(name, body) for name, body in tomllib.load(file).items()}
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise ModelBroken(
            f"The model catalog {path} cannot be read: {error!r}.", hint="Reinstall agent-kernel."
        ) from error


def is_named(model: str) -> bool:
    """Return whether ``model`` is the name of a catalog model, or DEFAULT."""
    return model == DEFAULT or model in catalog()


def defaults(memory: Memory | None = None) -> list[CatalogEntry]:
    """Return the models that can be the default of this machine, best first. ``memory`` is measured if it is not given;
    if it cannot be measured, only models without a memory requirement are returned. The total memory decides and not
    the free memory, so that the default does not change."""
    memory = memory or read_memory()
    total = memory.total if memory is not None else 0
    known = catalog()
    return [known[name] for name in DEFAULTS if name in known and known[name].memory <= total]


def entry(name: str) -> CatalogEntry:
    """Return the catalog entry with this name or title; for DEFAULT, the entry of the best model that suits this
    machine. Raises UnknownModel, which lists the names and the closest match."""
    known = catalog()
    if name == DEFAULT and (suitable := defaults()):
        return suitable[0]
    if name in known:
        return known[name]
    titles = {item.title: item.name for item in known.values()}
    if name in titles:
        return known[titles[name]]
    names = [DEFAULT, *known]
    close = difflib.get_close_matches(name, [*names, *titles], n=1, cutoff=0.5)
    guess = f" Did you mean {close[0]}?" if close else ""
    raise UnknownModel(
        f"There is no model {name!r}.{guess}",
        hint=f"The catalog has: {', '.join(names)}. A path or an id of a hub (org/name) can be given as well.",
        details={"known": names, "closest": close[0] if close else None},
    )


def entry_here(name: str, cache_dir: Path) -> CatalogEntry:
    """Return the catalog entry with this name or title. DEFAULT means the best suitable model that is already on this
    machine, so that a user who has only a smaller model is not asked to download another. If none is on this machine,
    it means the best suitable one. Raises UnknownModel, ModelBroken."""
    suitable = defaults() if name == DEFAULT else []
    return next((name for name in suitable if name.installed_model(cache_dir) is not None), None) or entry(name)


def resolve(
    model: str,
    cache_dir: Path,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    *,
    backend: str = "",
    sources: Sequence[str] = KINDS,
    env: Mapping[str, str] = os.environ,
) -> LocalModel:
    """Return the model on this machine for a catalog name, a path, or an id of a hub
    (``org/name[@revision][:file.gguf]``).

    A catalog name takes precedence, then an existing path, then an id of a hub. A GGUF file whose quantisation cannot
    be read exactly is rewritten once into ``cache_dir``, which takes a while and calls ``on_progress``. If the model of
    a hub id is not on this machine, the hub is asked for its size, but only if ``sources`` allows it. Blocking. Raises
    UnknownModel, ModelMissing (the model exists, but was not pulled; ``details`` are the result of
    ``CatalogEntry.offer``), ModelBroken, ModelUnsupported, PullFailed (the hub cannot be asked).
    """
    if is_path(model):
        return open_local(Path(model).expanduser().absolute(), cache_dir, on_progress)
    local = find_installed(model, cache_dir, backend)
    if local is not None:
        return local
    missing = fetchable(model, backend, sources, env)
    raise ModelMissing(
        f"The model {missing.name} ({missing.title}) is not on this machine: {megabytes(missing.sources[0].download)} "
        f"to download, licence {missing.licence}, from {missing.sources[0].publisher}.",
        hint=f"Run: agent-kernel model pull {missing.name}",
        details=missing.offer(),
    )


def find_installed(model: str, cache_dir: Path, backend: str = "") -> LocalModel | None:
    """Return the model of a catalog name or a hub id if it is in the cache; None if it was not pulled. Uses no network.
    Raises UnknownModel, ModelBroken."""
    hub_id = HubId.parse(model)
    if hub_id is None:
        return entry_here(model, cache_dir).installed_model(cache_dir)
    models = [
        candidate for folder in find_pulled(hub_id.slug, cache_dir) if (candidate := read_model(folder)) is not None
    ]
    if backend == "transformers":  # directories come first; within both groups the stable sort keeps the newest first
        models.sort(key=lambda candidate: not candidate.path.is_dir())
    return models[0] if models else None


def pulled_directories(model: str, cache_dir: Path) -> list[Path]:
    """Return the directories in the cache that belong to a catalog name or a hub id, including those of interrupted
    pulls and damaged models. Raises UnknownModel if ``model`` is neither a catalog name nor a hub id."""
    hub_id = HubId.parse(model)
    if hub_id is not None:
        return [*find_pulled(hub_id.slug, cache_dir)]
    catalog_entry = entry_here(model, cache_dir)
    pulled = [catalog_entry.directory(source, cache_dir) for source in catalog_entry.sources]
    partial = sorted(models_dir(cache_dir).glob(f".{catalog_entry.folder}-*.partial"))
    return [directory for directory in (*pulled, *partial) if directory.is_dir()]


def from_hubs(cache_dir: Path) -> list[LocalModel]:
    """Return the undamaged models in the cache that were pulled by a hub id."""
    by_name: dict[str, LocalModel] = {}
    for folder in find_pulled("hub", cache_dir):
        with suppress(ModelBroken):
            if (installed := read_model(folder)) is not None:
                by_name.setdefault(installed.name, installed)
    return list(by_name.values())


def fetchable(
    model: str, backend: str = "", sources: Sequence[str] = KINDS, env: Mapping[str, str] = os.environ
) -> CatalogEntry:
    """Return an entry with the sources from which a model can be downloaded: the catalog's entry for a name, an entry
    made from the hub's listing for a hub id. Blocking. Raises UnknownModel, ModelUnsupported, PullFailed."""
    hub_id = HubId.parse(model)
    if hub_id is None:
        return entry(model)
    if HubFile.kind not in sources:
        raise PullFailed(
            f"The model {hub_id} is not on this machine, and the settings do not allow downloads from a model hub.",
            hint="Give the path of a model or a name of the catalog, or allow downloads from the hub (settings sources "
            "and local_only).",
        )
    return hub_entry(hub_id, backend, env)


def is_path(model: str) -> bool:
    """Return whether ``model`` is a path. A text that begins with ``~``, ``.`` or ``/`` or contains a backslash is a
    path. A text in the form of a hub id is a path if a file or directory of this name exists. Any other text is a path
    if it contains a slash or ends in ``.gguf``. A catalog name is never a path."""
    if model.startswith(("~", ".", "/")) or "\\" in model:
        return True
    hub_id = HubId.parse(model)
    if hub_id is not None:
        return Path(model).exists()
    return model.endswith(".gguf") or "/" in model


def _entry(name: str, body: Mapping[str, Any]) -> CatalogEntry:
    allowed_fields = {
        "title",
        "description",
        "licence",
        "licence_from",
        "protocol",
        "context_length",
        "installed",
        "sources",
    }
    fields_given = set(body) - {"slug", "memory"}
    if fields_given != allowed_fields:
        missing, unknown = sorted(allowed_fields - fields_given), sorted(fields_given - allowed_fields)
        raise ValueError(f"The catalog entry {name} lacks the fields {missing} and has the unknown fields {unknown}.")
    if not body["sources"]:
        raise ValueError(f"{name} has no source")
    fields = dict(body) | {
        "protocol": protocol(body["protocol"]),
        "sources": tuple(_source(source) for source in body["sources"]),
    }
    return CatalogEntry(name=name, **fields)


def _source(body: Mapping[str, Any]) -> Source:
    fields: dict[str, Any] = {key: value for key, value in body.items() if key != "kind"}
    if body["kind"] == HubFile.kind:
        hash_field = {"sha256": _sha256(fields["sha256"])} if "sha256" in fields else {"sha256": ""}
        return HubFile(**{"size": 0} | fields | hash_field)
    if body["kind"] == Wheels.kind:
        parts = tuple(WheelPart(**part | {"sha256": _sha256(part["sha256"])}) for part in fields["parts"])
        return Wheels(**fields | {"parts": parts, "sha256": _sha256(fields["sha256"])})
    raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {body['kind']!r}")


def _sha256(value: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(f"{value!r} is not a SHA-256 in hex")
    return value


# Opens the model at a path. A model directory is used in place. A GGUF file that cannot be read exactly is rewritten
# once into the cache.
#
# A file's hash is stored by path, size and modification time, so that a large file is not read again at every start.


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

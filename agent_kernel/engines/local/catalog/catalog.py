"""The models that have a name here, and which model on this disk a name, a path or an id of a hub stands for.

Fetching is ``pull.py``. The names, sources and hashes, with reasons, are in ``catalog.toml``.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

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
from agent_kernel.engines.local.catalog.hub_id import HubId
from agent_kernel.engines.local.catalog.hub_listing import hub_entry
from agent_kernel.engines.local.catalog.installed_model import LocalModel, protocol, read_model
from agent_kernel.engines.local.catalog.model_path import open_local
from agent_kernel.engines.local.catalog.requantize_progress import Progress, megabytes

CATALOG = Path(__file__).with_name("catalog.toml")


def catalog() -> Mapping[str, CatalogEntry]:
    """The entries by name. Raises ModelBroken when the data file is not what this version reads."""
    return read_catalog(CATALOG)


@cache
def read_catalog(path: Path) -> Mapping[str, CatalogEntry]:
    try:
        with path.open("rb") as file:
            return {name: _entry(name, body) for name, body in tomllib.load(file).items()}
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise ModelBroken(f"The model catalog {path} can not be read: {error!r}.", hint="Reinstall.") from error


def entry(name: str) -> CatalogEntry:
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
        hint=f"Known: {', '.join(known)}; or give a path, or an id of a hub (org/name).",
        details={"known": list(known), "closest": close[0] if close else None},
    )


def resolve(
    model: str,
    cache_dir: Path,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    *,
    backend: str = "",
    sources: Sequence[str] = KINDS,
    env: Mapping[str, str] = os.environ,
) -> LocalModel:
    """The model for a catalog name, a path, or an id of a hub (``org/name[@revision][:file.gguf]``), ready to load.

    A catalog name wins over everything, a path that exists over a hub id that looks the same. A GGUF file whose
    quantisation can not be read exactly is rewritten once into ``cache_dir``, which takes a while: ``on_progress`` gets
    a ``Progress`` now and then. The hub is asked only what a model that is not here would cost, and only where
    ``sources`` allows it. Blocking. Raises UnknownModel, ModelMissing (known, not pulled; ``details`` are
    ``Entry.offer``), ModelBroken, ModelUnsupported, PullFailed (the hub can not be asked).
    """
    if is_path(model):
        return open_local(Path(model).expanduser().absolute(), cache_dir, on_progress)
    here = installed(model, cache_dir, backend)
    if here is not None:
        return here
    wanted = HubId.parse(model)
    found = entry(model) if wanted is None else _on_the_hub(wanted, backend, sources, env)
    raise ModelMissing(
        f"The model {found.name} ({found.title}) is not on this machine: {megabytes(found.sources[0].download)} "
        f"to download, licence {found.licence}, from {found.sources[0].publisher}.",
        hint=f"Run: agent-kernel model pull {found.name}",
        details=found.offer(),
    )


def installed(model: str, cache_dir: Path, backend: str = "") -> LocalModel | None:
    """The model of a catalog name or of an id of a hub in the cache, None when it was not pulled. Asks nobody. Raises
    UnknownModel, ModelBroken."""
    wanted = HubId.parse(model)
    if wanted is None:
        return entry(model).installed_model(cache_dir)
    found = [here for folder in find_pulled(wanted.slug, cache_dir) if (here := read_model(folder)) is not None]
    whole = [here for here in found if here.path.is_dir()]
    if backend == "transformers" and whole:
        return whole[0]
    return found[0] if found else None


def from_hubs(cache_dir: Path) -> list[LocalModel]:
    """The models in the cache that were pulled by an id of a hub; damaged ones are left out."""
    found: dict[str, LocalModel] = {}
    for folder in find_pulled("hub", cache_dir):
        with suppress(ModelBroken):
            if (here := read_model(folder)) is not None:
                found.setdefault(here.name, here)
    return list(found.values())


def fetchable(
    model: str, backend: str = "", sources: Sequence[str] = KINDS, env: Mapping[str, str] = os.environ
) -> CatalogEntry:
    """The catalog's entry of a name, or what the hub tells of an id. Blocking. Raises as ``resolve``."""
    wanted = HubId.parse(model)
    return entry(model) if wanted is None else _on_the_hub(wanted, backend, sources, env)


def is_path(model: str) -> bool:
    """By its looks (``~``, ``.`` or a root first, ``.gguf`` last, a backslash), or because something is there. A
    catalog name never is one; what has one slash and is not there is an id of a hub."""
    if model.startswith(("~", ".", "/")) or "\\" in model:
        return True
    wanted = HubId.parse(model)
    if wanted is not None:
        return Path(model).exists()
    return model.endswith(".gguf") or "/" in model


def _on_the_hub(wanted: HubId, backend: str, sources: Sequence[str], env: Mapping[str, str]) -> CatalogEntry:
    if HubFile.kind not in sources:
        raise PullFailed(
            f"{wanted} is a model of a hub, and is not on this machine; no hub may be asked here.",
            hint="Give the path of a model, a catalog name, or allow the hub (sources, local_only).",
        )
    return hub_entry(wanted, backend, env)


def _entry(name: str, body: Mapping[str, Any]) -> CatalogEntry:
    known = {"title", "description", "licence", "licence_from", "protocol", "context_length", "installed", "sources"}
    if set(body) != known:
        raise ValueError(f"{name}: {sorted(set(body) ^ known)} missing or unknown")
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
        known = {"sha256": _sha256(fields["sha256"])} if "sha256" in fields else {"sha256": ""}
        return HubFile(**{"size": 0} | fields | known)
    if body["kind"] == Wheels.kind:
        parts = tuple(WheelPart(**part | {"sha256": _sha256(part["sha256"])}) for part in fields["parts"])
        return Wheels(**fields | {"parts": parts, "sha256": _sha256(fields["sha256"])})
    raise ValueError(f"kind is one of {', '.join(KINDS)}, not {body['kind']!r}")


def _sha256(value: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(f"{value!r} is not a SHA-256 in hex")
    return value

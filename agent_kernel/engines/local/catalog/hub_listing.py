"""Lists a repository of a hub and selects the files that a backend needs. Downloads nothing.

Only data files are selected: GGUF, safetensors, OpenVINO graphs, JSON and text, but no pickled weights and no code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.core.errors import ModelUnsupported, PullFailed, UnknownModel
from agent_kernel.engines.local.catalog.catalog_entry import CatalogEntry, HubFile, HubSnapshot, SnapshotFile
from agent_kernel.engines.local.catalog.hub_id import HubId
from agent_kernel.engines.local.catalog.installed_model import ASSUMED

ENDPOINT = "https://huggingface.co"
TIMEOUT_S = 10.0
SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
KIND = re.compile(r"[-._](I?Q\d\w*|BF16|F16|F32)\.gguf$", re.IGNORECASE)
"""Finds the quantisation in the name of a GGUF file, where converters write it."""
NO_MODELS = ("mmproj", "imatrix", "adapter", "lora")
"""Texts in the names of GGUF files that contain no language model."""
GGUF_ORDER = (
    *("Q8_0", "F16", "BF16", "F32", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0"),
    *("Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0"),
)
"""Quantisations in order of preference. The types that agent-kernel reads exactly come first. Files of the other types
are rewritten as Q8_0, so they follow in order of precision."""
BITS: Mapping[str, float] = {"F32": 32, "F16": 16, "BF16": 16, "Q8": 8.5, "Q6": 6.6, "Q5": 5.7, "Q4": 4.8, "Q3": 3.9}
"""Approximate bits per weight. Compared with Q8_0 (8.5), they give the size of a file after it is rewritten as Q8_0."""
SMALL = (".json", ".txt", ".model", ".jinja")
GRAPH = ("openvino_model", "openvino_tokenizer", "openvino_detokenizer")
WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")
NAME = re.compile(r"\w[\w.+-]*", re.ASCII)
"""Matches the names of files at the top level of a repository, and nothing that contains a directory."""
WHY = "You named this model; agent-kernel has not checked its content."


def hub_entry(hub_id: HubId, backend: str, env: Mapping[str, str]) -> CatalogEntry:
    """Return a catalog entry with one source for a model of a hub, at the revision in ``hub_id`` or the newest one.

    For the ``backend`` openvino, the source is a GGUF file or an OpenVINO export; for transformers, it is safetensors.
    Without a backend, it is the first of a GGUF file, an OpenVINO export and safetensors that the repository has.
    Blocking. Raises UnknownModel (no such repository, revision or file), ModelUnsupported (no usable files, with the
    reason) or PullFailed (gated, no network, refused token).
    """
    info = _fetch_info(hub_id, env)
    files = [file for file in (_file(sibling) for sibling in info.siblings or ()) if file is not None]
    revision, licence = str(info.sha), _licence(info)
    matching = [file for file in files if file.path == hub_id.file]
    if hub_id.file and not matching:
        raise UnknownModel(
            f"{hub_id.repo} has no file {hub_id.file} at {revision[:12]}.",
            hint=_list_files(files),
            details={"model": str(hub_id)},
        )
    single = matching[0] if matching else _gguf(hub_id, files) if backend != "transformers" else None
    publisher = f"{hub_id.publisher}, on the hub"
    source: HubFile | HubSnapshot
    if single is not None:
        sha256 = single.digest if len(single.digest) == 64 else ""
        source = HubFile(hub_id.repo, single.path, revision, single.size, sha256, publisher, False, WHY)
        installed = int(single.size * max(1.0, 8.5 / _bits(single.path)))
    else:
        chosen = _snapshot(hub_id, files, backend)
        source = HubSnapshot(hub_id.repo, revision, chosen, publisher, False, WHY)
        installed = source.download
    description = f"From the hub, {source.label}."
    return CatalogEntry(
        str(hub_id), hub_id.repo, description, licence, "the model card", ASSUMED, 0, installed, (source,), hub_id.slug
    )


def endpoint_of(env: Mapping[str, str]) -> str:
    return env.get("HF_ENDPOINT", "").rstrip("/") or ENDPOINT


def token_of(env: Mapping[str, str]) -> str:
    """Return HF_TOKEN, or the token that the hub's command-line program stored at a login; empty if there is none. The
    token appears in no log and no message."""
    if env is not os.environ or env.get("HF_TOKEN"):
        return env.get("HF_TOKEN", "")
    from huggingface_hub import get_token

    return get_token() or ""


def is_offline(env: Mapping[str, str]) -> bool:
    return env.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def _fetch_info(hub_id: HubId, env: Mapping[str, str]) -> Any:
    """Return the hub's description of the repository, with the sizes and hashes of its files. Raises UnknownModel,
    PullFailed."""
    if is_offline(env):
        raise PullFailed(
            (f"{hub_id} was not requested from the hub, because HF_HUB_OFFLINE is set."),
            hint="Unset HF_HUB_OFFLINE, or give the path of a model.",
        )
    # The import takes half a second. The library handles the hub's errors, proxies and token store.
    from huggingface_hub import HfApi, errors

    token = token_of(env)
    api = HfApi(endpoint=endpoint_of(env), token=token or False)
    try:
        return api.model_info(hub_id.repo, revision=hub_id.revision or None, files_metadata=True, timeout=TIMEOUT_S)
    except errors.GatedRepoError as error:
        raise PullFailed(
            f"{hub_id.repo} is gated: you must accept the terms of its publisher first.",
            hint=f"Accept the terms at {endpoint_of(env)}/{hub_id.repo}, and set HF_TOKEN to a token of that account.",
            details={"model": hub_id.repo, "gated": True},
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UnknownModel(
            f"{hub_id.repo} has no revision {hub_id.revision!r}.", hint="Leave the revision out to use the newest one."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise _missing_error(hub_id, token) from error
    except errors.HfHubHTTPError as error:
        raise _http_error(hub_id, error, token) from error
    except Exception as error:  # the library also raises errors of its HTTP library, which depends on its version
        raise PullFailed(
            f"The hub ({endpoint_of(env)}) did not answer the request for {hub_id}: {_first_line(error)}.",
            hint="Check the network, HF_ENDPOINT and the proxy variables, or give the path of a model.",
        ) from error


def _http_error(hub_id: HubId, error: Any, token: str) -> PullFailed | UnknownModel:
    status = getattr(error.response, "status_code", 0)
    if status == 401 and token:
        return token_error(f"{hub_id}")
    if status in (401, 403, 404):
        return _missing_error(hub_id, token)
    return PullFailed(f"The hub answered HTTP {status} for {hub_id}.", hint="Try again later.")


def _missing_error(hub_id: HubId, token: str) -> UnknownModel:
    """Return the error for a repository that the hub does not show. A client without access gets the same answer for a
    private model as for one that does not exist."""
    rights = (
        ("Check that the token in HF_TOKEN may read this model.") if token else "If the model is private, set HF_TOKEN."
    )
    return UnknownModel(
        f"The hub has no model {hub_id.repo}, or does not show it to you.",
        hint=f"Check the spelling; catalog names have no slash, paths begin with ./ or /. {rights}",
        details={"model": str(hub_id)},
    )


def token_error(problem: str) -> PullFailed:
    return PullFailed(
        f"The hub refused the token for {problem} (HTTP 401): the token is wrong, has expired or was revoked.",
        hint="Create a new token on the hub and set HF_TOKEN to it, or unset HF_TOKEN for a public model.",
    )


def _file(sibling: Any) -> SnapshotFile | None:
    """Convert a file of the hub's listing. Return None if its size or digest is missing, because the file could then
    not be verified."""
    digest = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
    if sibling.size is None or not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", digest or ""):
        return None
    return SnapshotFile(sibling.rfilename, int(sibling.size), digest)


def _licence(info: Any) -> str:
    tags = [tag.partition(":")[2] for tag in info.tags or () if tag.startswith("license:")]
    card = info.card_data.get("license") if info.card_data else None
    return str(card or (tags[0] if tags else "not stated"))


def _gguf(hub_id: HubId, files: Sequence[SnapshotFile]) -> SnapshotFile | None:
    """Return the best GGUF file that contains a whole model; None if there is no GGUF file. Raises ModelUnsupported if
    all of them are parts of a split model."""
    gguf_files = [file for file in files if file.path.endswith(".gguf")]
    models = [file for file in gguf_files if not any(mark in file.path.lower() for mark in NO_MODELS)]
    whole = [file for file in models if not SPLIT.search(file.path)]
    if models and not whole:
        raise ModelUnsupported(
            f"{hub_id.repo} splits its model into {len(models)} GGUF files; agent-kernel reads only one whole file.",
            hint=(
                "Choose a repository with one file, or join the files with llama-gguf-split --merge and give the path."
            ),
        )
    return min(whole, key=lambda file: (_rank(file.path), len(file.path), file.path), default=None)


def _quantisation(path: str) -> str:
    kind = KIND.search(path)
    return kind[1].upper() if kind else ""


def _rank(path: str) -> int:
    name = _quantisation(path)
    return GGUF_ORDER.index(name) if name in GGUF_ORDER else len(GGUF_ORDER)


def _bits(path: str) -> float:
    name = _quantisation(path)
    return next((bits for start, bits in BITS.items() if name.startswith(start)), 3.0 if name else 8.5)


def _snapshot(hub_id: HubId, files: Sequence[SnapshotFile], backend: str) -> tuple[SnapshotFile, ...]:
    top = {file.path: file for file in files if NAME.fullmatch(file.path)}
    small = [file for path, file in top.items() if path.endswith(SMALL)]
    graph = [top[f"{part}{end}"] for part in GRAPH for end in (".xml", ".bin") if f"{part}{end}" in top]
    if "openvino_model.xml" in top and "openvino_model.bin" in top and backend != "transformers":
        return (*small, *graph)
    weights = [file for path, file in top.items() if WEIGHTS.fullmatch(path)]
    if not weights or "config.json" not in top:
        raise ModelUnsupported(_unusable_reason(hub_id, top, files), hint=_list_files(files))
    return (*small, *weights)


def _unusable_reason(hub_id: HubId, top: Mapping[str, SnapshotFile], files: Sequence[SnapshotFile]) -> str:
    if "adapter_config.json" in top:
        return f"{hub_id.repo} is an adapter for another model, not a model."
    if any(file.path.endswith((".bin", ".pt", ".pth", ".ckpt")) for file in files):
        return (
            f"{hub_id.repo} has only pickled weights, which agent-kernel does not download: loading them can run code."
        )
    if any(file.path.endswith(".gguf") for file in files):
        return f"{hub_id.repo} has only GGUF files, but the setting backend requests transformers."
    return f"{hub_id.repo} holds no model that can be used here: no GGUF file, no safetensors, no OpenVINO export."


def _list_files(files: Sequence[SnapshotFile]) -> str:
    names = [file.path for file in files if file.path.endswith((".gguf", ".safetensors"))]
    return (
        f"The repository has {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}."
        if names
        else "Choose another model."
    )


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0].rstrip(".")

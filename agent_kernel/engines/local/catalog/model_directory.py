"""Checks and describes a model directory in the format in which the model's library saves it: safetensors
(``save_pretrained``) or an OpenVINO export.

This module reads only names, sizes and headers, and uses only the standard library. Pickled weights are not accepted,
because loading them runs code.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

from agent_kernel.core.errors import ModelBroken

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
GRAPH = "openvino_model.xml"
GRAPH_WEIGHTS = "openvino_model.bin"
GRAPH_TOKENIZER = "openvino_tokenizer.xml"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
MAX_HEADER = 100 << 20
"""Largest header of a safetensors file in bytes; the limit of the safetensors library itself."""
MAX_JSON = 64 << 20
SAVE = "save_pretrained(..., safe_serialization=True) writes a directory that can be loaded."


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """The properties of a model directory. ``weights`` is the stored size of the weights in bytes. ``parameters`` is
    the number of weights, 0 if not counted. ``context_length`` is in tokens, 0 if not stated."""

    kind: Literal["safetensors", "openvino"]
    architecture: str
    context_length: int
    weights: int
    parameters: int
    licence: str = ""


def read_model_directory(directory: Path) -> ModelDirectory:
    """Read a directory. Raises ModelBroken if something is missing, cut off, or cannot be loaded without running
    code."""
    try:
        config = _json(directory / CONFIG)
        if (directory / GRAPH).is_file():
            weights, parameters = _graph(directory), 0
        else:
            shards = _shards(directory)
            weights = sum(path.stat().st_size for path in shards)
            parameters = sum(_parameters(path) for path in shards)
    except OSError as error:
        raise ModelBroken(f"{directory} cannot be read: {error}.") from error
    text = config.get("text_config")
    facts = {**config, **text} if isinstance(text, dict) else config
    return ModelDirectory(
        "openvino" if (directory / GRAPH).is_file() else "safetensors",
        str(config.get("model_type", "")),
        _number(facts.get("max_position_embeddings")),
        weights,
        parameters,
    )


def identity(directory: Path) -> str:
    """Return a SHA-256 of the names, sizes and modification times of the files. It identifies the content without
    reading all of it."""
    lines = [
        f"{path.name}|{facts.st_size}|{facts.st_mtime_ns}"
        for path in sorted(directory.iterdir())
        if path.is_file() and (facts := path.stat())
    ]
    return hashlib.sha256("\n".join([str(directory.resolve()), *lines]).encode()).hexdigest()


def _graph(directory: Path) -> int:
    for name in (GRAPH_WEIGHTS, GRAPH_TOKENIZER):
        if not (directory / name).is_file():
            raise ModelBroken(
                f"{directory} is not a complete OpenVINO export: {name} is missing.", hint="Export the model again."
            )
    size = (directory / GRAPH_WEIGHTS).stat().st_size
    if size == 0:
        raise ModelBroken(f"{directory / GRAPH_WEIGHTS} is empty.", hint="Export the model again.")
    return size


def _shards(directory: Path) -> list[Path]:
    """Return the paths of the weight files. Raises ModelBroken if one is missing, or if there are none."""
    if (directory / INDEX).is_file():
        weight_map = _json(directory / INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise ModelBroken(f"{directory / INDEX} is damaged.", hint="Download the model's files again.")
        shards = [directory / Path(name).name for name in sorted(set(weight_map.values()))]
    else:
        shards = sorted(directory.glob("*.safetensors"))
    missing = [path.name for path in shards if not path.is_file()]
    if missing:
        raise ModelBroken(
            f"{directory} lacks {len(missing)} of {len(shards)} weight files, for example {missing[0]}.",
            hint="Download the model's files again.",
        )
    if not shards:
        raise _no_weights(directory)
    return shards


def _no_weights(directory: Path) -> ModelBroken:
    if any(directory.glob("*.gguf")):
        return ModelBroken(
            f"{directory} contains GGUF files, not a model directory.", hint="Give the path of one of the files."
        )
    if any(path for pattern in PICKLED for path in directory.glob(pattern)):
        return ModelBroken(
            f"{directory} has only pickled weights, which agent-kernel does not load: loading them can run code.",
            hint=f"Convert the model: {SAVE}",
        )
    return ModelBroken(f"{directory} has no safetensors weights.", hint=SAVE)


def _parameters(path: Path) -> int:
    """Count the elements of all tensors of a safetensors file, and check the file's length against its header.

    A safetensors file begins with the length of a JSON header in 8 bytes, little-endian. The header and the data
    follow; offsets count from the beginning of the data.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > MAX_HEADER or 8 + length > size:
                raise ValueError("the header reaches beyond the end of the file")
            tensors = [body for name, body in json.loads(file.read(length)).items() if name != "__metadata__"]
        end = 8 + length + max((int(body["data_offsets"][1]) for body in tensors), default=0)
        if end > size:
            raise ValueError(f"the file ends after {size} of {end} bytes")
        return sum(prod(int(count) for count in body["shape"]) for body in tensors)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error, RecursionError) as error:
        raise ModelBroken(
            f"{path} is not a complete safetensors file: {error}.", hint="Download the file again."
        ) from error


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        if any(path.parent.glob("*.gguf")) or not any(path.parent.glob("*.safetensors")):
            raise _no_weights(path.parent)
        raise ModelBroken(f"{path.parent} has no {path.name}.", hint=f"This is not a model directory; {SAVE}")
    try:
        if path.stat().st_size > MAX_JSON:
            raise ValueError("the file is too large")
        body = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelBroken(f"{path} is damaged: {error}.", hint="Download the model's files again.") from error
    if not isinstance(body, dict):
        raise ModelBroken(f"{path} does not contain a JSON object.", hint="Download the model's files again.")
    return body


def _number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0

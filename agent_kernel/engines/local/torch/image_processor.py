"""The processor of a model that sees, also where torchvision is not installed: for pictures alone Pillow is enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAMED_IN = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
VIDEO = "video_processor"


def load_processor(transformers: Any, path: Path, **how: Any) -> Any:
    """Many families (Qwen VL, SmolVLM, InternVL) bring a part for videos that only torchvision can run; they are loaded
    without it, since videos come as pictures here. Raises what the library raises for any other lack."""
    try:
        return transformers.AutoProcessor.from_pretrained(path, **how)
    except ImportError as error:
        if "torchvision" not in str(error).lower():
            raise
        kind = getattr(transformers, _class_name(path), None)
        if kind is None or VIDEO not in kind.get_attributes():
            raise
    return _without_videos(kind).from_pretrained(path, **how)


def _without_videos(kind: Any) -> Any:
    """The class with one part fewer; its constructor takes what is left."""
    parts = [part for part in kind.get_attributes() if part != VIDEO]
    return type(kind.__name__, (kind,), {"get_attributes": classmethod(lambda cls: parts)})


def _class_name(path: Path) -> str:
    """As the model's files name it, empty if they do not."""
    for name in NAMED_IN:
        file = path / name
        if file.is_file():
            named = json.loads(file.read_text(encoding="utf-8")).get("processor_class")
            if isinstance(named, str):
                return named
    return ""

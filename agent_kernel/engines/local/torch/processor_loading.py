"""Loads the processor of a vision model. torchvision is not required: Pillow is enough for pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAMED_IN = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
VIDEO = "video_processor"


def load_processor(transformers: Any, path: Path, **how: Any) -> Any:
    """Load the processor of the model in ``path``; ``how`` are keyword arguments of ``from_pretrained``. Many families
    of models (Qwen VL, SmolVLM, InternVL) include a video part that needs torchvision. Without torchvision that part is
    left out, because videos arrive as pictures. Raises the library's ImportError if anything else is missing."""
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
    """Return a subclass of the processor class ``kind`` without the video part. Its constructor takes the other
    parts."""
    parts = [part for part in kind.get_attributes() if part != VIDEO]
    return type(kind.__name__, (kind,), {"get_attributes": classmethod(lambda cls: parts)})


def _class_name(path: Path) -> str:
    """Return the name of the processor's class from the model's files; an empty string if they do not state one."""
    for name in NAMED_IN:
        file = path / name
        if file.is_file():
            class_name = json.loads(file.read_text(encoding="utf-8")).get("processor_class")
            if isinstance(class_name, str):
                return class_name
    return ""

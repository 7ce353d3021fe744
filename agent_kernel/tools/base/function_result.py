"""Converts the return value of a user's function into a tool result: text, JSON, images, files."""

from __future__ import annotations

import dataclasses
import enum
import io
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.files import ProducedFile
from agent_kernel.core.messages import Media
from agent_kernel.core.protocols import ToolOutput

NOTHING = "(it returned nothing)"
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def output_of(value: Any, name: str) -> ToolOutput:
    """Convert the value that the function of the tool ``name`` returned.

    Text is returned unchanged. Images (PIL, matplotlib, image bytes) become media, and other bytes a file. Dicts,
    lists, dataclasses and pydantic models become JSON, and anything else its repr. A list or tuple may contain values
    of different kinds. Raises whatever the value's own methods raise."""
    if isinstance(value, ToolOutput):
        return value
    if isinstance(value, (list, tuple)) and any(_to_media(item) or isinstance(item, bytes) for item in value):
        parts = [output_of(item, f"{name}-{number}") for number, item in enumerate(value, start=1)]
        text = "\n".join(part.text for part in parts)
        media = tuple(medium for part in parts for medium in part.media)
        return ToolOutput(text, media=media, files=tuple(file for part in parts for file in part.files))
    if isinstance(value, bytes) and _mime(value) is None:
        file = ProducedFile(f"{name}.bin", value, declared=True)
        return ToolOutput(f"[{len(value)} bytes]", files=(file,))
    if drawn := _to_media(value):
        return ToolOutput("[1 figure(s) shown]", media=(drawn,))
    return ToolOutput(_text(value) or NOTHING)


def _to_media(value: Any) -> Media | None:
    if isinstance(value, Media):
        return value
    if isinstance(value, bytes):
        mime = _mime(value)
        return Media.of(mime, value) if mime else None
    if callable(getattr(value, "savefig", None)):  # a figure of matplotlib
        drawn = io.BytesIO()
        value.savefig(drawn, format="png")
        return Media.of("image/png", drawn.getvalue())
    picture = getattr(value, "_repr_png_", None)  # PIL images, and other objects with the same method
    data = picture() if callable(picture) and not isinstance(value, type) else None
    return Media.of("image/png", data) if isinstance(data, bytes) else None


def _mime(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for beginning, mime in _SIGNATURES.items() if data.startswith(beginning)), None)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    plain = isinstance(value, (Mapping, list, tuple, set, frozenset, bool, int, float, enum.Enum))
    if plain or dataclasses.is_dataclass(value) or hasattr(value, "model_dump_json"):
        import pydantic_core

        json = pydantic_core.to_json(value, fallback=repr, bytes_mode="base64", inf_nan_mode="constants")
        return json.decode("utf-8", "replace")
    return repr(value)

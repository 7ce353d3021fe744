"""The server's end of the worker's protocol: pure, and suspicious, since agent code can write to the channel too.

A frame is ``kind (1 byte) | length (4 bytes, big endian) | body``. Whatever is not exactly what the worker sends raises
``Nonsense``; whoever reads ends the worker then.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from agent_kernel.messages import Status

HEAD = 5
MAX_JSON = 1 << 20
IMAGES = {"image/png": b"\x89PNG\r\n\x1a\n"}
_STATUS = ("success", "error", "interrupted")


class Nonsense(Exception):
    """The other side does not speak the protocol."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The jail is in force. ``layers``: name -> {required, active, detail}."""

    layers: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Refused:
    reason: str
    layers: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Picture:
    """``size`` bytes of it follow as the next frame."""

    run: int
    mime: str
    size: int


@dataclass(frozen=True, slots=True)
class Done:
    run: int
    status: Status
    value: str | None
    error: str | None


Frame: TypeAlias = Ready | Refused | Picture | Done


def encode(body: Mapping[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return b"J" + struct.pack(">I", len(data)) + data


def size_of(head: bytes, kind: bytes, limit: int) -> int:
    """Length of the body that follows. Raises Nonsense for another kind or more than ``limit``."""
    size = int.from_bytes(head[1:], "big")
    if head[:1] != kind or size > limit:
        raise Nonsense(f"a frame of kind {head[:1]!r} and {size} bytes")
    return size


def decode(body: bytes) -> Frame:
    """Raises Nonsense."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Nonsense("not JSON") from error
    if not isinstance(found, dict):
        raise Nonsense("not an object")
    match found.get("type"):
        case "done":
            return _done(found)
        case "media":
            return _picture(found)
        case "ready":
            return Ready(_layers(found))
        case "refused":
            return Refused(_text(found, "reason"), _layers(found))
    raise Nonsense("an unknown frame")


def check_picture(picture: Picture, data: bytes) -> None:
    """Raises Nonsense unless the bytes are what was announced."""
    if len(data) != picture.size or not data.startswith(IMAGES[picture.mime]):
        raise Nonsense("not the picture that was announced")


def _done(found: dict[str, Any]) -> Done:
    status = found.get("status")
    if status not in _STATUS:
        raise Nonsense("an unknown status")
    value, error = (found.get(name) if found.get(name) is None else _text(found, name) for name in ("value", "error"))
    return Done(_number(found, "id"), cast("Status", status), value, error)


def _picture(found: dict[str, Any]) -> Picture:
    mime = _text(found, "mime")
    if mime not in IMAGES:
        raise Nonsense("an unknown kind of picture")
    return Picture(_number(found, "id"), mime, _number(found, "size"))


def _layers(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    layers = found.get("layers")
    if not isinstance(layers, dict) or not all(isinstance(layer, dict) for layer in layers.values()):
        raise Nonsense("no layers")
    return layers


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise Nonsense(f"{name} is no text")
    # Lone surrogates can be written in JSON but not in UTF-8, which everything after us writes.
    return value.encode("utf-8", "replace").decode()


def _number(found: dict[str, Any], name: str) -> int:
    value = found.get(name)
    if type(value) is not int or value < 0:
        raise Nonsense(f"{name} is no number")
    return value

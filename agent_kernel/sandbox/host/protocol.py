"""The server's end of the worker's protocol: pure, and suspicious, since agent code can write to the channel too.

A frame is ``kind (1 byte) | length (4 bytes, big endian) | body``. Whatever is not exactly what the worker sends raises
``Nonsense``; whoever reads ends the worker then.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast, get_args

from agent_kernel.core.messages import Status
from agent_kernel.core.protocols import Encoding, VariableInfo
from agent_kernel.sandbox.host.chart_validation import CHARTS, TABLE

HEAD = 5
MAX_JSON = 1 << 20
IMAGES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8"}
JSON_MEDIA = CHARTS | {TABLE}
MAX_LISTED = 1_000
MAX_NAME = 200
_STATUS = ("success", "error", "interrupted", "timeout")
_TAKEN = tuple(encoding for encoding in get_args(Encoding) if encoding != "pickle")


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
class Shown:
    """A picture, table or chart: ``size`` bytes of it follow as the next frame."""

    run: int
    mime: str
    size: int


@dataclass(frozen=True, slots=True)
class Taken:
    """A copy of a variable: ``size`` bytes of it follow as the next frame."""

    run: int
    encoding: Encoding
    type: str
    size: int


@dataclass(frozen=True, slots=True)
class Listed:
    run: int
    variables: tuple[VariableInfo, ...]


@dataclass(frozen=True, slots=True)
class Done:
    run: int
    status: Status
    value: str | None
    error: str | None
    exit_code: int | None = None


Frame: TypeAlias = Ready | Refused | Shown | Taken | Listed | Done


def encode(body: Mapping[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return b"J" + struct.pack(">I", len(data)) + data


def head_of(data: bytes) -> bytes:
    """What goes before bytes that a J frame announced."""
    return b"B" + struct.pack(">I", len(data))


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
            return _shown(found)
        case "variable":
            return _taken(found)
        case "variables":
            return _listed(found)
        case "ready":
            return Ready(_layers(found))
        case "refused":
            return Refused(_text(found, "reason"), _layers(found))
    raise Nonsense("an unknown frame")


def check_size(announced: Shown | Taken, data: bytes) -> None:
    """Raises Nonsense unless there are as many bytes as were announced, and for a picture such as begin one."""
    if len(data) != announced.size:
        raise Nonsense("not what was announced")
    if isinstance(announced, Shown) and not data.startswith(IMAGES.get(announced.mime, b"")):
        raise Nonsense("not the picture that was announced")


def _done(found: dict[str, Any]) -> Done:
    status = found.get("status")
    if status not in _STATUS:
        raise Nonsense("an unknown status")
    value, error = (found.get(name) if found.get(name) is None else _text(found, name) for name in ("value", "error"))
    code = found.get("exit_code")
    exit_code = None if code is None else _number(found, "exit_code")
    return Done(_number(found, "id"), cast("Status", status), value, error, exit_code)


def _shown(found: dict[str, Any]) -> Shown:
    mime = _text(found, "mime")
    if mime not in IMAGES and mime not in JSON_MEDIA:
        raise Nonsense("an unknown kind of picture")
    return Shown(_number(found, "id"), mime, _number(found, "size"))


def _taken(found: dict[str, Any]) -> Taken:
    encoding = found.get("encoding")
    if encoding not in _TAKEN:
        raise Nonsense("an encoding that nothing comes in")
    return Taken(
        _number(found, "id"), cast("Encoding", encoding), _text(found, "of")[:MAX_NAME], _number(found, "size")
    )


def _listed(found: dict[str, Any]) -> Listed:
    variables = found.get("variables")
    if not isinstance(variables, list) or len(variables) > MAX_LISTED:
        raise Nonsense("no list of variables")
    return Listed(_number(found, "id"), tuple(_held(one) for one in variables))


def _held(one: Any) -> VariableInfo:
    if not isinstance(one, dict) or not isinstance(shape := one.get("shape"), list) or len(shape) > 32:
        raise Nonsense("no variable")
    if not all(type(side) is int and 0 <= side < 1 << 63 for side in shape):
        raise Nonsense("no shape")
    return VariableInfo(
        _text(one, "name")[:MAX_NAME], _text(one, "type")[:MAX_NAME], tuple(cast("Sequence[int]", shape))
    )


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

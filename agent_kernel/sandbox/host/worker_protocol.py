"""Parses and checks the frames that a worker sends to the server. The functions have no side effects. They are strict,
because the model's code can write to the channel too.

A frame of kind J is a JSON object; a frame of kind B contains the bytes that the preceding J frame announced. A frame
that a correct worker would not send raises FrameError; the reader then ends the worker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast, get_args

from agent_kernel.core.messages import Status
from agent_kernel.core.protocols import Encoding, VariableInfo
from agent_kernel.core.wire.framing import FrameError, encode_frame, parse_object
from agent_kernel.sandbox.host.chart_validation import CHARTS, TABLE

MAX_JSON = 1 << 20
IMAGES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8"}
JSON_MEDIA = CHARTS | {TABLE}
MAX_LISTED = 1_000
MAX_NAME = 200
_STATUS = ("success", "error", "interrupted", "timeout")
_TAKEN = tuple(encoding for encoding in get_args(Encoding) if encoding != "pickle")


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker reports that the jail is in force. ``layers`` maps the name of each layer to {required, active,
    detail}."""

    layers: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class JailRefused:
    reason: str
    layers: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class MediaAnnounced:
    """Announces a picture, table or chart of ``size`` bytes, which follow as the next frame."""

    run: int
    mime: str
    size: int


@dataclass(frozen=True, slots=True)
class VariableAnnounced:
    """Announces a copy of a variable of ``size`` bytes, which follow as the next frame."""

    run: int
    encoding: Encoding
    type: str
    size: int


@dataclass(frozen=True, slots=True)
class VariableList:
    run: int
    variables: tuple[VariableInfo, ...]


@dataclass(frozen=True, slots=True)
class Done:
    run: int
    status: Status
    value: str | None
    error: str | None
    exit_code: int | None = None


Frame: TypeAlias = Ready | JailRefused | MediaAnnounced | VariableAnnounced | VariableList | Done


def encode(body: Mapping[str, Any]) -> bytes:
    return encode_frame(json.dumps(body).encode(), b"J")


def decode(body: bytes) -> Frame:
    """Parse a frame's body. Raises FrameError."""
    message = parse_object(body)
    match message.get("type"):
        case "done":
            return _parse_done(message)
        case "media":
            return _parse_media(message)
        case "variable":
            return _parse_copy(message)
        case "variables":
            return _parse_list(message)
        case "ready":
            return Ready(_layers(message))
        case "refused":
            return JailRefused(_text(message, "reason"), _layers(message))
    raise FrameError("the worker sent a frame of an unknown kind")


def check_size(announced: MediaAnnounced | VariableAnnounced, data: bytes) -> None:
    """Raise FrameError unless ``data`` has the announced size and, for a picture, starts like one."""
    if len(data) != announced.size:
        raise FrameError("the worker sent another number of bytes than it announced")
    if isinstance(announced, MediaAnnounced) and not data.startswith(IMAGES.get(announced.mime, b"")):
        raise FrameError("the worker sent bytes that are not a picture of the announced type")


def _parse_done(message: dict[str, Any]) -> Done:
    status = message.get("status")
    if status not in _STATUS:
        raise FrameError("the worker sent a result with an unknown status")
    value, error = (
        message.get(name) if message.get(name) is None else _text(message, name) for name in ("value", "error")
    )
    code = message.get("exit_code")
    exit_code = None if code is None else _number(message, "exit_code")
    return Done(_number(message, "id"), cast("Status", status), value, error, exit_code)


def _parse_media(message: dict[str, Any]) -> MediaAnnounced:
    mime = _text(message, "mime")
    if mime not in IMAGES and mime not in JSON_MEDIA:
        raise FrameError("the worker announced media of an unknown type")
    return MediaAnnounced(_number(message, "id"), mime, _number(message, "size"))


def _parse_copy(message: dict[str, Any]) -> VariableAnnounced:
    encoding = message.get("encoding")
    if encoding not in _TAKEN:
        raise FrameError("the worker announced a variable with an unknown encoding")
    return VariableAnnounced(
        _number(message, "id"), cast("Encoding", encoding), _text(message, "of")[:MAX_NAME], _number(message, "size")
    )


def _parse_list(message: dict[str, Any]) -> VariableList:
    variables = message.get("variables")
    if not isinstance(variables, list) or len(variables) > MAX_LISTED:
        raise FrameError("the worker sent an invalid list of variables")
    return VariableList(_number(message, "id"), tuple(_parse_variable(variable) for variable in variables))


def _parse_variable(value: Any) -> VariableInfo:
    if not isinstance(value, dict) or not isinstance(shape := value.get("shape"), list) or len(shape) > 32:
        raise FrameError("the worker sent an invalid description of a variable")
    if not all(type(side) is int and 0 <= side < 1 << 63 for side in shape):
        raise FrameError("the worker sent a variable with an invalid shape")
    return VariableInfo(
        _text(value, "name")[:MAX_NAME], _text(value, "type")[:MAX_NAME], tuple(cast("Sequence[int]", shape))
    )


def _layers(message: dict[str, Any]) -> dict[str, dict[str, Any]]:
    layers = message.get("layers")
    if not isinstance(layers, dict) or not all(isinstance(layer, dict) for layer in layers.values()):
        raise FrameError("the worker sent an invalid report of the layers")
    return layers


def _text(message: dict[str, Any], name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str):
        raise FrameError(f"the worker sent a {name} that is not text")
    # JSON can contain lone surrogates, but the callers encode the text as UTF-8, which cannot.
    return value.encode("utf-8", "replace").decode()


def _number(message: dict[str, Any], name: str) -> int:
    value = message.get(name)
    if type(value) is not int or value < 0:
        raise FrameError(f"the worker sent a {name} that is not a number from 0 up")
    return value

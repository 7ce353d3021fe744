"""Parses the messages of a document, in any of the chat formats of OpenAI, mistral.rs and agent-kernel. The input is
untrusted. The functions have no side effects."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast, get_args

from agent_kernel.core.messages import Media, Message, Part, Role, Status, Text, ToolCall, parse_arguments
from agent_kernel.sessions.export.formats.json_reader import Fields
from agent_kernel.sessions.export.formats.mistralrs_videos import MAX_FRAMES, PNG, describe

MAX_MEDIA = 10_000
"""Maximum number of media in a document."""
_HASH = re.compile(r"[0-9a-f]{64}\Z")
_MIME = re.compile(r"[\x20-\x7e]{1,255}\Z")
_DATA_URL = re.compile(r"data:([^,;]{3,201})(?:;[^,;]{0,200}){0,4};base64,", re.ASCII)


class MessageReader:
    """Reads the messages of one document in order. ``document`` has the lists ``images`` and ``videos``: the n-th image
    part of the messages refers to the n-th entry of ``images``, and the n-th video part to the n-th entry of
    ``videos``. ``blobs`` holds the bytes of the media read so far, by hash. ``left_out`` counts, by kind, what a
    message of agent-kernel cannot represent."""

    def __init__(self, document: Fields) -> None:
        self.blobs: dict[str, bytes] = {}
        self.left_out: dict[str, int] = {}
        lists = document if isinstance(document.value, dict) else Fields({}, document.place)
        self._document = lists
        self._images = iter(lists.each("images"))
        self._videos = iter(lists.each("videos"))
        self._media = 0

    def message(self, wrapped: Fields) -> Message:
        body = unwrap(wrapped)
        role = "system" if body.get("role", str) == "developer" else body.get("role", str)
        status = body.child("status").value
        if role not in get_args(Role):
            body.child("role").refuse(f"unknown role {role[:80]!r}")
        if status is not None and status not in get_args(Status):
            body.child("status").refuse("unknown status")
        return Message(
            cast(Role, role),
            self._parts(body),
            tuple(_call(call) for call in body.each("tool_calls")),
            body.get("reasoning_content", str, ""),
            body.utf8("tool_call_id", "") or None,
            body.get("name", str, "") or None,
            cast(Status | None, status),
        )

    def end(self) -> None:
        """Finish reading. Raises InvalidRequest if ``images`` has entries that no part refers to. Entries of ``videos``
        that no part refers to are only counted as left out, since sessions of mistral.rs may contain them."""
        if next(self._images, None) is not None:
            self._document.refuse("there are more images than image parts")
        rest = sum(1 for _ in self._videos)
        if rest:
            self.leave_out("videos", rest)

    def leave_out(self, kind: str, count: int = 1) -> None:
        self.left_out[kind] = self.left_out.get(kind, 0) + count

    def keep(self, place: Fields, mime: str, data: bytes) -> Media:
        """Add the bytes to ``blobs``, and return a Media that refers to them. Raises InvalidRequest, which names
        ``place``, for an invalid MIME type and for too many media."""
        if not _MIME.match(mime):
            place.refuse("does not have a valid MIME type")
        self._one_more(place)
        medium = Media.of(mime, data)
        self.blobs[medium.hash] = data
        return replace(medium, data=None)

    def _parts(self, body: Fields) -> tuple[Part, ...]:
        content = body.child("content")
        if isinstance(content.value, str):
            return (Text(content.value),) if content.value else ()
        parts = [part for field in body.each("content") for part in self._part(field)]
        return tuple(part for part in parts if part != Text(""))

    def _part(self, part: Fields) -> Iterator[Part]:
        match part.get("type", str):
            case "text" | "input_text" | "output_text":
                yield Text(part.get("text", str))
            case "refusal":
                yield Text(part.get("refusal", str))
            case "image":
                yield self._image(part)
            case "media":
                self._one_more(part)
                yield medium(part)
            case "image_url":
                yield self._convert_image(part.child("image_url"))
            case "file":
                yield self._convert_file(part.child("file"))
            case "video":
                yield from self._video(part)
            case kind:
                part.refuse(f"unknown part type {kind[:80]!r}")

    def _image(self, part: Fields) -> Media:
        image = next(self._images, None)
        if image is None:
            part.refuse("there are fewer images than image parts")
        if isinstance(image.value, dict):
            self._one_more(part)
            reference = medium(part)
            if image.get("hash", str) != reference.hash:
                image.refuse("has another hash than the image part that it belongs to")
            return reference
        known = medium(part) if part.child("hash").value is not None else None
        image_medium = self.keep(image, known.mime if known else PNG, decode_base64(image))
        if known is not None and image_medium != known:
            image.refuse("the bytes do not match their hash and size")
        return image_medium

    def _convert_image(self, image: Fields) -> Part:
        """Convert an image. An image at a URL is not fetched, because its author would learn who reads the document."""
        url = image if isinstance(image.value, str) else image.child("url")
        if not isinstance(url.value, str):
            url.refuse("should be a URL")
        return self._data_url(url) or self._elsewhere(url)

    def _convert_file(self, file: Fields) -> Part:
        data = file.child("file_data")
        stored_medium = self._data_url(data) if isinstance(data.value, str) else None
        if stored_medium is None:
            self.leave_out("files")
            return Text(f"[file {file.get('filename', str, '')[:200]}, which was not included]")
        return stored_medium

    def _data_url(self, url: Fields) -> Media | None:
        head = _DATA_URL.match(url.value)
        if head is None:
            return None
        return self.keep(url, head[1].lower(), decode_base64(Fields(url.value[head.end() :], url.place)))

    def _elsewhere(self, url: Fields) -> Text:
        self.leave_out("images that are elsewhere")
        return Text(f"[image at {url.value[:200]}]")

    def _video(self, part: Fields) -> Iterator[Part]:
        """Yield the parts that stand for the next entry of ``videos``: a note and the frames as images. mistral.rs
        stores only the frames that a model saw."""
        video = next(self._videos, None)
        frames = list(video.each("frames")) if video is not None else []
        if video is None or not frames:
            self.leave_out("videos")
            yield Text("[video]")
            return
        yield Text(describe(video, min(len(frames), MAX_FRAMES)))
        if len(frames) > MAX_FRAMES:
            self.leave_out("frames of videos", len(frames) - MAX_FRAMES)
        for frame in frames[:MAX_FRAMES]:
            yield self.keep(frame, PNG, decode_base64(frame))

    def _one_more(self, place: Fields) -> None:
        self._media += 1
        if self._media > MAX_MEDIA:
            place.refuse(f"there are more than {MAX_MEDIA} media")


def medium(part: Fields) -> Media:
    """Read a part of the type ``media``: MIME type, hash and size of bytes that are stored elsewhere in the
    document."""
    digest, size, mime = part.get("hash", str), part.count("size"), part.get("mime", str)
    if not _HASH.match(digest):
        part.child("hash").refuse("a hash is 64 hexadecimal digits")
    if not _MIME.match(mime):
        part.child("mime").refuse("is not a MIME type")
    return Media(mime, digest, size)


def unwrap(message: Fields) -> Fields:
    """Remove the tags of mistral.rs, which wraps values as {"Left": text} or {"Right": list of objects}."""
    if not isinstance(message.value, dict):
        message.refuse("should be an object")
    return Fields({name: _remove_tag(value) for name, value in message.value.items()}, message.place)


def is_tagged(message: Any) -> bool:
    """Return whether a message has values that mistral.rs has wrapped as {"Left": ...} or {"Right": ...}."""
    return isinstance(message, dict) and _remove_tag(message.get("role")) is not message.get("role")


def decode_base64(field: Fields) -> bytes:
    if not isinstance(field.value, str):
        field.refuse("should be base64")
    try:
        return base64.b64decode(field.value, validate=True)
    except (binascii.Error, ValueError):
        field.refuse("should be base64")


def _remove_tag(value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1 and value.keys() <= {"Left", "Right"}:
        return next(iter(value.values()))
    return value


def _call(call: Fields) -> ToolCall:
    function = call.child("function")
    arguments = function.child("arguments").value or {}
    if isinstance(arguments, str):
        arguments = parse_arguments(arguments)
    if not isinstance(arguments, dict):
        function.refuse("arguments should be an object")
    return ToolCall(call.utf8("id", ""), function.get("name", str), arguments)

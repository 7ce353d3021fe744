"""Prepares the media of a request for a prompt. Videos become frames, and each picture is replaced by a short text in
its message, which is called its mark and contains its hash.

Tool protocols can then join, drop and repeat texts without handling pictures. When a chat is rendered, the marks become
image parts again. For a model without vision, a textual note replaces the picture instead.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_kernel.core.errors import EngineError, InvalidRequest
from agent_kernel.core.messages import Media, Message, Text, is_visible_media, replace_media_with_note
from agent_kernel.core.protocols import EngineRequest
from agent_kernel.engines.local.backend import ChatMessage, Picture
from agent_kernel.engines.local.media import images as pictures
from agent_kernel.engines.local.media import video

MARK = re.compile("\ue0f0([0-9a-f]{64})\ue0f1")
"""Matches the mark of a picture: its SHA-256 in hex, between two characters of Unicode's private use area. If a user
writes such a text, it has no effect unless the hash is that of a picture of the same request; that picture is then
shown there as well."""
KEPT_BYTES = 128 * 2**20
"""Maximum size in bytes of all frames and pictures that are kept for later requests."""


@dataclass(frozen=True, slots=True)
class ShownRequest:
    """A request whose media are replaced. ``request`` contains only text, in which marks stand for pictures;
    ``pictures`` maps the hashes in the marks to the pictures."""

    request: EngineRequest
    pictures: Mapping[str, Picture]


class ShownMedia:
    """Replaces the media of requests by marks. It keeps decoded media, because each round of a conversation contains
    the same pictures again."""

    def __init__(self, *, sees: bool) -> None:
        self._sees = sees
        self._opened: OrderedDict[str, list[Picture]] = OrderedDict()

    async def prepare(self, request: EngineRequest) -> ShownRequest:
        """Return the request with its media replaced by marks. Raises InvalidRequest if a picture from the user cannot
        be read, and EngineError if a library for it is missing. An unreadable picture that a tool made does not raise
        an error; a note replaces it."""
        by_mark: dict[str, Picture] = {}
        messages = [await self._mark_media(message, by_mark) for message in request.messages]
        return ShownRequest(replace(request, messages=tuple(messages)), by_mark)

    async def _mark_media(self, message: Message, pictures: dict[str, Picture]) -> Message:
        if not message.media:
            return message
        if not self._sees:
            return replace_media_with_note(message)
        marks: list[str] = []
        unseen: list[str] = []
        for medium in message.media:
            try:
                for frame in await self._frames(medium):
                    digest = Media.of(frame.mime, frame.data).hash
                    pictures[digest] = frame
                    marks.append(f"\ue0f0{digest}\ue0f1")
            except (InvalidRequest, EngineError) as error:
                if message.role == "user" and medium.data is not None:
                    raise
                unseen.append(f"[{medium.mime}: {error.message}]")
        text = "\n".join(part for part in (message.text, *unseen) if part)
        # The note is a separate line in a tool result, because the last line of a failed result may be quoted alone.
        gap = "\n" if marks and message.role == "tool" else ""
        return replace(message, parts=(Text("".join(marks) + gap + text),))

    async def _frames(self, medium: Media) -> list[Picture]:
        if medium.data is None:
            raise InvalidRequest("the server no longer stores this file")
        if not is_visible_media(medium.mime):
            raise InvalidRequest("the model accepts only images and videos")
        if medium.hash not in self._opened:
            read = video.frames if medium.mime.startswith("video/") else pictures.frames
            opened = await asyncio.to_thread(read, Picture(medium.mime, medium.data))
            self._remember(medium.hash, opened)
            return opened
        self._opened.move_to_end(medium.hash)
        return self._opened[medium.hash]

    def _remember(self, digest: str, opened: list[Picture]) -> None:
        self._opened[digest] = opened
        size = sum(len(frame.data) for frames in self._opened.values() for frame in frames)
        while size > KEPT_BYTES and len(self._opened) > 1:
            _, dropped = self._opened.popitem(last=False)
            size -= sum(len(frame.data) for frame in dropped)


def replace_marks(
    messages: Sequence[ChatMessage], pictures: Mapping[str, Picture]
) -> tuple[list[ChatMessage], tuple[Picture, ...]]:
    """Return the chat in which image parts replace the marks, and the pictures in the order of these parts.
    ``pictures`` maps hashes to pictures."""
    in_order: list[Picture] = []
    chat: list[ChatMessage] = []
    for message in messages:
        content = message.get("content")
        parts = _parts(content, pictures, in_order) if pictures and isinstance(content, str) else []
        chat.append({**message, "content": parts} if parts else message)
    return chat, tuple(in_order)


def _parts(text: str, pictures: Mapping[str, Picture], marked_pictures: list[Picture]) -> list[dict[str, Any]]:
    """Split a text into text parts and image parts at its marks, and append the marked pictures to
    ``marked_pictures``. ``pictures`` maps hashes to pictures. Return an empty list for a text without marks."""
    parts: list[dict[str, Any]] = []
    rest = 0
    for match in MARK.finditer(text):
        if match[1] in pictures:
            if before := text[rest : match.start()]:
                parts.append({"type": "text", "text": before})
            parts.append({"type": "image"})
            marked_pictures.append(pictures[match[1]])
            rest = match.end()
    if parts and text[rest:]:
        parts.append({"type": "text", "text": text[rest:]})
    return parts

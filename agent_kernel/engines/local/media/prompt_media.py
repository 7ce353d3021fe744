"""Prepares the media of a request for a prompt: videos become frames, and each picture is replaced by a mark in its
message's text.

Tool protocols can then join, drop and repeat texts without knowledge of pictures. The marks become image parts again
when a chat is rendered. For a model without vision, a note in words replaces the picture.
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
"""A hash between characters of the private use area. In a text that a user wrote it has no effect, unless it names a
picture of the same request, which is then shown there too."""
KEPT_BYTES = 128 * 2**20
"""Bytes of frames and pictures that are kept after their first use."""


@dataclass(frozen=True, slots=True)
class ShownRequest:
    """``request`` contains only text, with marks; ``pictures`` maps hashes to pictures."""

    request: EngineRequest
    pictures: Mapping[str, Picture]


class ShownMedia:
    """Replaces media by marks, and keeps opened media, because each round of a conversation shows the same pictures."""

    def __init__(self, *, sees: bool) -> None:
        self._sees = sees
        self._opened: OrderedDict[str, list[Picture]] = OrderedDict()

    async def prepare(self, request: EngineRequest) -> ShownRequest:
        """Replace the media of a request by marks. Raises InvalidRequest for a user's picture that cannot be read; one
        that a tool made is replaced by a note. Raises EngineError if a library is missing."""
        by_mark: dict[str, Picture] = {}
        messages = [await self._mark_media(message, by_mark) for message in request.messages]
        return ShownRequest(replace(request, messages=tuple(messages)), by_mark)

    async def _mark_media(self, message: Message, found: dict[str, Picture]) -> Message:
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
                    found[digest] = frame
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
            raise InvalidRequest("the model cannot look at this")
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


def in_parts(
    messages: Sequence[ChatMessage], known: Mapping[str, Picture]
) -> tuple[list[ChatMessage], tuple[Picture, ...]]:
    """Return the chat with its marks as image parts, and the pictures in order."""
    in_order: list[Picture] = []
    chat: list[ChatMessage] = []
    for message in messages:
        content = message.get("content")
        parts = _parts(content, known, in_order) if known and isinstance(content, str) else []
        chat.append({**message, "content": parts} if parts else message)
    return chat, tuple(in_order)


def _parts(text: str, known: Mapping[str, Picture], found: list[Picture]) -> list[dict[str, Any]]:
    """Split a text at its marks; empty for a text without marks."""
    parts: list[dict[str, Any]] = []
    rest = 0
    for match in MARK.finditer(text):
        if match[1] in known:
            if before := text[rest : match.start()]:
                parts.append({"type": "text", "text": before})
            parts.append({"type": "image"})
            found.append(known[match[1]])
            rest = match.end()
    if parts and text[rest:]:
        parts.append({"type": "text", "text": text[rest:]})
    return parts

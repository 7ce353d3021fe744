"""mistral.rs's serialized session: values tagged by their side of an Either, images beside the messages. Pure.

    {"messages": [{"role": {"Left": "user"}, "content": {"Left": "hi"}}, ...], "images": [BASE64 PNG, ...],
     "videos": [{"fps", "frames": [BASE64 PNG], "total_num_frames", "sampled_indices"}], "files": [...]}

The n-th image part of the messages is the n-th of ``images``. The document has no ids, times, branches or reasons.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_kernel import files as values
from agent_kernel.messages import Media, Message
from agent_kernel.sessions.fields import Fields
from agent_kernel.sessions.formats import kept_files
from agent_kernel.sessions.formats.conversation import of_messages, visible
from agent_kernel.sessions.formats.message_reader import PNG, MessageReader
from agent_kernel.sessions.whole import Transcript


def write(transcript: Transcript, branch: str | None, left_out: dict[str, int]) -> bytes:
    """One branch. PNG images go to ``images``; every other medium is one of ``files``, with its bytes, before the files
    of the session."""
    said = list(visible(transcript, branch, left_out))
    files = _Files(transcript, left_out)
    messages = [_tagged(_body(message, files)) for message in said]
    images = [
        base64.b64encode(transcript.blobs[medium.hash]).decode("ascii")
        for message in said
        for medium in message.media
        if files.is_image(medium)
    ]
    kept = [kept_files.write(file, transcript.blobs.get(file.hash)) for file in transcript.files]
    document = {"messages": messages, "images": images, "videos": [], "files": [*files.listed, *kept]}
    return json.dumps(document, separators=(",", ":")).encode()


def read(document: Fields, namespace: str) -> Transcript:
    """Wrapped or plain values. It writes no ids of results, so they are paired with calls in their order."""
    if document.child("messages").value is None:
        document.refuse("this is no session: it has no messages")
    reader = MessageReader(document)
    said = [(place, reader.message(place)) for place in document.each("messages")]
    reader.end()
    kept = list(kept_files.read(document))
    blobs = reader.blobs | {file.hash: data for file, data in kept if data is not None}
    come = of_messages(said, blobs, namespace, reader.left_out, strict=False)
    return replace(come, files=tuple(file for file, _ in kept))


class _Files:
    def __init__(self, transcript: Transcript, left_out: dict[str, int]) -> None:
        self.listed: list[dict[str, Any]] = []
        self._blobs: Mapping[str, bytes] = transcript.blobs
        self._created = int(transcript.session.created)
        self._left_out = left_out
        self._seen: set[str] = set()

    def is_image(self, medium: Media) -> bool:
        return medium.mime == PNG and medium.hash in self._blobs

    def add(self, medium: Media, role: str) -> None:
        data = self._blobs.get(medium.hash)
        if data is None:
            self._left_out["media"] = self._left_out.get("media", 0) + 1
        elif medium.hash not in self._seen:
            self._seen.add(medium.hash)
            self.listed.append(_file(medium, data, role, self._created))


def _file(medium: Media, data: bytes, role: str, created: int) -> dict[str, Any]:
    suffix = medium.mime.partition("/")[2].partition(";")[0]
    mine = role == "user"
    body = {
        "id": f"file-{medium.hash[:32]}",
        "name": f"{medium.hash[:12]}.{suffix}",
        "format": suffix,
        "mime_type": medium.mime,
        "bytes": medium.size,
        "created_at": created,
        "purpose": "user_data" if mine else "agent_output",
        "source": {"tool": "user_upload" if mine else "python", "round": 0, "turn": 0},
    }
    return values.with_body(body, data, text=values.is_text(medium.mime))


def _body(message: Message, files: _Files) -> dict[str, Any]:
    body: dict[str, Any] = {"role": message.role, "content": _content(message, files)}
    if message.calls:
        body["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
            for call in message.calls
        ]
    if message.reasoning:
        body["reasoning_content"] = message.reasoning
    if message.role == "tool" and message.name:
        body["name"] = message.name
    return body


def _content(message: Message, files: _Files) -> str | list[dict[str, str]]:
    """Images first, then one text: the order in which mistral.rs writes them."""
    notes = []
    for medium in message.media:
        if not files.is_image(medium):
            files.add(medium, message.role)
            notes.append(f"[{medium.mime}: {medium.hash[:12]}]")
    text = "\n".join(filter(None, [message.text, *notes]))
    images = [{"type": "image"} for medium in message.media if files.is_image(medium)]
    return [*images, {"type": "text", "text": text}] if images else text


def _tagged(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"Left" if isinstance(value, str) else "Right": value} for name, value in body.items()}

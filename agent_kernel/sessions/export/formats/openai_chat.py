"""Reads and writes sessions as OpenAI chat messages: a list, or an object with the list ``messages``, as OpenAI's API
accepts it. The functions have no side effects."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.messages import Media, Message, Text, replace_media_with_note
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.export.formats.json_reader import Fields
from agent_kernel.sessions.export.formats.message_list import transcript_from_messages, visible_messages
from agent_kernel.sessions.export.formats.message_reader import MessageReader


def write(transcript: Transcript, branch: str | None, left_out: dict[str, int]) -> bytes:
    """Write one branch as a JSON object. OpenAI's API has no reasoning and no tool names, and accepts images in user
    messages only; notes replace all other media. ``left_out`` counts, by kind, what is not written."""
    bodies = [_body(message, transcript.blobs, left_out) for message in visible_messages(transcript, branch, left_out)]
    return json.dumps({"messages": bodies}, indent=1).encode()


def read(document: Fields, namespace: str) -> Transcript:
    """Parse a document. Raises InvalidRequest for a call without its result and for a result without its call."""
    listed = Fields({"messages": document.value}, "document") if isinstance(document.value, list) else document
    reader = MessageReader(Fields({}, document.place))
    messages = [(place, reader.message(place)) for place in listed.each("messages")]
    return transcript_from_messages(messages, reader.blobs, namespace, reader.left_out, strict=True)


def _body(message: Message, blobs: Mapping[str, bytes], left_out: dict[str, int]) -> dict[str, Any]:
    body: dict[str, Any] = {"role": message.role, "content": _content(message, blobs, left_out)}
    if message.reasoning:
        left_out["reasoning"] = left_out.get("reasoning", 0) + 1
    if message.role == "user" and message.name:
        body["name"] = message.name
    if message.calls:
        body["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)},
            }
            for call in message.calls
        ]
    if message.call_id:
        body["tool_call_id"] = message.call_id
    return body


def _content(message: Message, blobs: Mapping[str, bytes], left_out: dict[str, int]) -> str | list[dict[str, Any]]:
    images = [medium for medium in message.media if medium.mime.startswith("image/") and medium.hash in blobs]
    seen = images if message.role == "user" else []
    if len(seen) < len(message.media):
        left_out["media"] = left_out.get("media", 0) + len(message.media) - len(seen)
    if not seen:
        return replace_media_with_note(message).text
    return [_part(part, blobs) for part in message.parts if isinstance(part, Text) or part in seen]


def _part(part: Text | Media, blobs: Mapping[str, bytes]) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": data_url(part, blobs[part.hash])}}


def data_url(medium: Media, data: bytes) -> str:
    return f"data:{medium.mime};base64,{base64.b64encode(data).decode('ascii')}"

"""Reads and writes mistral.rs's serialized sessions. Values are wrapped as {"Left": ...} or {"Right": ...} (Rust's
Either), and images are in a list beside the messages. The functions have no side effects.

    {"messages": [{"role": {"Left": "user"}, "content": {"Left": "hi"}}, ...], "images": [BASE64 PNG, ...],
     "videos": [{"fps", "frames": [BASE64 PNG], "total_num_frames", "sampled_indices"}], "files": [...]}

The n-th image part of the messages refers to the n-th entry of ``images``, and the n-th video part to the n-th entry of
``videos``. The document has no ids, times or branches, and no reasons why a turn ended. ``title``, ``tags`` and the
``status`` of a message are additions of agent-kernel.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from agent_kernel.core import files as values
from agent_kernel.core.files import File
from agent_kernel.core.messages import Media, Message, Part, Text
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.export.formats import mistralrs_files, mistralrs_videos
from agent_kernel.sessions.export.formats.json_reader import Fields
from agent_kernel.sessions.export.formats.message_list import (
    message_to_json,
    transcript_from_messages,
    visible_messages,
)
from agent_kernel.sessions.export.formats.message_reader import MessageReader

_LAST_NOTE = re.compile(r"(?:\A|\n)\[([^\[\]\n]{3,255}): ([0-9a-f]{12})\]\Z")
"""Matches a note at the end of a text that stands for a media object whose bytes are an entry of ``files``. Its groups
are the MIME type and the beginning of the hash."""


def write(transcript: Transcript, branch: str | None, left_out: dict[str, int]) -> bytes:
    """Write one branch. PNG images go to ``images``; other media become entries of ``files`` with their bytes, before
    the files of the session. Results are written in the order of their calls, since a reader can assign them to the
    calls only by their order. ``left_out`` counts, by kind, what is not written."""
    media = _MediaLists(transcript, left_out)
    messages = [_body(message, media) for message in _sort_results(visible_messages(transcript, branch, left_out))]
    files = [mistralrs_files.write(file, transcript.blobs.get(file.hash)) for file in transcript.files]
    lists = {"images": media.images, "videos": media.videos, "files": [*media.files, *files]}
    return json.dumps({"messages": messages, **lists}, separators=(",", ":")).encode()


def read(document: Fields, namespace: str) -> Transcript:
    """Read a session of mistral.rs, whose values may be wrapped or plain. Results have no call ids, so they are
    assigned to the calls in order."""
    if document.child("messages").value is None:
        document.refuse("this is not a session: it has no messages")
    reader = MessageReader(document)
    messages = [(place, reader.message(place)) for place in document.each("messages")]
    reader.end()
    files = list(mistralrs_files.read(document.each("files")))
    blobs = reader.blobs | {file.hash: data for file, data in files if data is not None}
    # ``media`` are the files that ``write`` created from media. They are recognized by their ids.
    media = {file.hash[:12]: file for file, data in files if data is not None and file.id == _file_id(file.hash)}
    used_ids: set[str] = set()
    messages = [(place, _with_media(message, media, used_ids)) for place, message in messages]
    transcript = transcript_from_messages(messages, blobs, namespace, reader.left_out, strict=False)
    session = replace(transcript.session, title=_title(document), tags=_tags(document))
    return replace(transcript, session=session, files=tuple(file for file, _ in files if file.id not in used_ids))


def _sort_results(messages: Iterator[Message]) -> Iterator[Message]:
    """Yield the messages with the results of each round in the order of their calls. The input may have them in the
    order in which the calls ended."""
    order: dict[str | None, int] = {}
    results: list[Message] = []
    for message in messages:
        if message.role == "tool":
            results.append(message)
            continue
        yield from sorted(results, key=lambda result: order.get(result.call_id, len(order)))
        order, results = {call.id: at for at, call in enumerate(message.calls)}, []
        yield message
    yield from sorted(results, key=lambda result: order.get(result.call_id, len(order)))


def _title(document: Fields) -> str:
    title = document.child("title").value
    return title if isinstance(title, str) else ""


def _tags(document: Fields) -> tuple[str, ...]:
    tags = document.child("tags").value
    return tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()


def _with_media(message: Message, files: Mapping[str, File], used_ids: set[str]) -> Message:
    """Replace notes of the form ``[MIME type: beginning of a hash]`` at the end of the message's text by the media for
    which they stand. ``files`` maps the beginning of a hash to the file with the bytes. The ids of the files that were
    found are added to ``used_ids``."""
    *parts, last = message.parts or (Text(""),)
    media: list[Part] = []
    text = last.text if isinstance(last, Text) else ""
    while (note := _LAST_NOTE.search(text)) and (file := files.get(note[2])):
        used_ids.add(file.id)
        media.insert(0, Media(note[1], file.hash, file.size))
        text = text[: note.start()]
    return replace(message, parts=(*parts, *([Text(text)] if text else []), *media)) if media else message


class _MediaLists:
    """The images, videos and files of the document, in the order in which messages refer to them."""

    def __init__(self, transcript: Transcript, left_out: dict[str, int]) -> None:
        self.images: list[str] = []
        self.videos: list[mistralrs_videos.Video] = []
        self.files: list[dict[str, Any]] = []
        self._blobs: Mapping[str, bytes] = transcript.blobs
        self._created = int(transcript.session.created)
        self._left_out = left_out
        self._seen: set[str] = set()

    def content(self, message: Message) -> str | list[dict[str, str]]:
        """Add the media of a message to the lists, and return its content in the order that mistral.rs uses: images,
        videos, then one text."""
        shown, rest = mistralrs_videos.split(message.parts, self._blobs)
        self.videos += shown
        placeholders: list[dict[str, str]] = []
        notes: list[str] = []
        for part in rest:
            if isinstance(part, Text):
                continue
            if part.mime == mistralrs_videos.PNG and part.hash in self._blobs:
                self.images.append(base64.b64encode(self._blobs[part.hash]).decode("ascii"))
                placeholders.append({"type": "image"})
            else:
                self._add(part, message.role)
                notes.append(f"[{part.mime}: {part.hash[:12]}]")
        placeholders += [{"type": "video"} for _ in shown]
        text_parts = "".join(part.text for part in rest if isinstance(part, Text))
        text = "\n".join(filter(None, [text_parts, *notes]))
        return [*placeholders, {"type": "text", "text": text}] if placeholders else text

    def _add(self, medium: Media, role: str) -> None:
        data = self._blobs.get(medium.hash)
        if data is None:
            self._left_out["media"] = self._left_out.get("media", 0) + 1
        elif medium.hash not in self._seen:
            self._seen.add(medium.hash)
            self.files.append(_file(medium, data, role, self._created))


def _file(medium: Media, data: bytes, role: str, created: int) -> dict[str, Any]:
    suffix = medium.mime.partition("/")[2].partition(";")[0]
    is_upload = role == "user"
    body = {
        "id": _file_id(medium.hash),
        "name": f"{medium.hash[:12]}.{suffix}",
        "format": suffix,
        "mime_type": medium.mime,
        "bytes": medium.size,
        "created_at": created,
        "purpose": "user_data" if is_upload else "agent_output",
        "source": {"tool": "user_upload" if is_upload else "python", "round": 0, "turn": 0},
    }
    return values.with_body(body, data, text=values.is_text(medium.mime))


def _file_id(digest: str) -> str:
    return f"file-{digest[:32]}"


def _body(message: Message, media: _MediaLists) -> dict[str, Any]:
    """Return the JSON of a message with tagged values. Results have no call id, since readers assign them to calls by
    their order."""
    body = message_to_json(message) | {"content": media.content(message)}
    left_out = {"tool_call_id"} | ({"status"} if message.status == "success" else set())
    return {
        name: {"Left" if isinstance(value, str) else "Right": value}
        for name, value in body.items()
        if name not in left_out
    }

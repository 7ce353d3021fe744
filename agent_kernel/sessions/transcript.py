"""NAME.agent.json: one session as a document that travels with a notebook. Pure: values in, bytes out, and back.

    {"agent_kernel": {"format": 1, "session": {...}, "turns": [...], "items": [...], "blobs": {HASH: {...}}},
     "messages": [...], "images": [...], "videos": [], "files": []}

The last four keys are mistral.rs's serialized session: ``messages`` with an ``{"type": "image"}`` part for every PNG,
whose base64 stands at the same position in ``images``. What that format has no place for is in ``agent_kernel``:
``items`` is parallel to ``messages``. The namespace stays at home: it may be a person's name.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent_kernel.errors import InvalidRequest
from agent_kernel.messages import Media, Message
from agent_kernel.sessions import transcript_reader
from agent_kernel.sessions.model import Item, Session, Turn

FORMAT = transcript_reader.FORMAT
INLINE_BYTES = 256 * 1024
"""Larger media are files of their own, so that the document stays readable and its diffs small."""
MAX_BYTES = 256 * 2**20
MAX_DEPTH = 220
"""Of the document: what a store takes (200) and the levels around it."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """``blobs`` are the media by hash, as far as they are known; ``left_out`` counts what another program's document
    had and this one has no place for (videos, files, results without a call)."""

    session: Session
    turns: tuple[Turn, ...]
    items: tuple[Item, ...]
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def absent(self) -> tuple[str, ...]:
        """Hashes that items name and ``blobs`` lacks, in order: files beside the document, if they exist."""
        return tuple(digest for digest in _media(self.items) if digest not in self.blobs)

    def with_files(self, files: Mapping[str, bytes]) -> Transcript:
        """The absent media, read from files that bear their hashes. Raises InvalidRequest if one is something else."""
        media = _media(self.items)
        wanted = {digest: data for digest, data in files.items() if digest in media}
        for digest, data in wanted.items():
            if hashlib.sha256(data).hexdigest() != digest or len(data) != media[digest].size:
                raise InvalidRequest(f"The file {digest} is not the medium it is named after.")
        return replace(self, blobs={**self.blobs, **wanted})


@dataclass(frozen=True, slots=True)
class Exported:
    """The document, and the media too large for it by the name (their hash) of the file they go to."""

    document: bytes
    files: Mapping[str, bytes]


def export(
    session: Session, turns: Sequence[Turn], items: Sequence[Item], blobs: Mapping[str, bytes] | None = None
) -> Exported:
    """The whole session: every turn, every item. The same session gives the same bytes. A medium that ``blobs`` lacks
    is named without its bytes."""
    media, by_id = _media(items), {turn.id: turn for turn in turns}
    known = {digest: data for digest, data in (blobs or {}).items() if digest in media}
    small = {digest: data for digest, data in known.items() if len(data) <= INLINE_BYTES}
    own = {
        "format": FORMAT,
        "session": _session(session),
        "turns": [_turn(turn) for turn in turns],
        "items": [_item(item, by_id[item.turn]) for item in items],
        "blobs": {digest: _blob(medium, small.get(digest)) for digest, medium in media.items()},
    }
    document = {
        "agent_kernel": own,
        "messages": [_message(item.message) for item in items],
        "images": list(_images(items, small)),
        "videos": [],
        "files": [],
    }
    text = _layout(document, levels=3) + "\n"
    return Exported(text.encode(), {digest: data for digest, data in known.items() if digest not in small})


def parse(document: bytes, namespace: str = "local", *, max_bytes: int = MAX_BYTES) -> Transcript:
    """What ``export`` wrote (``parse(export(x)) == x``, but for the namespace and media in files) or a session that
    mistral.rs serialized, with plain or Either-wrapped values; that one has no id, times or turns: its id is
    ``imported``, a user message begins a turn.

    Nothing in the document is trusted: sizes, depth, types, ids, hashes, numbering and the pairing of calls and
    results are checked. Raises InvalidRequest that names the place.
    """
    read = transcript_reader.read(document, namespace, max_bytes=max_bytes, max_depth=MAX_DEPTH)
    return Transcript(read.session, read.turns, read.items, read.blobs, read.left_out)


def _media(items: Sequence[Item]) -> dict[str, Media]:
    return {medium.hash: medium for item in items for medium in item.message.media}


def _is_image(medium: Media) -> bool:
    return medium.mime == transcript_reader.PNG


def _session(session: Session) -> dict[str, Any]:
    return {
        "id": session.key.id,
        "title": session.title,
        "created": session.created,
        "updated": session.updated,
        "head": session.head,
        "revision": session.revision,
        "turns": session.turns,
    }


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "id": turn.id,
        "ordinal": turn.ordinal,
        "state": turn.state,
        "reason": turn.reason,
        "cell": turn.cell,
        "epoch": turn.epoch,
        "where": turn.where,
        "model": turn.model,
        "opened": turn.opened,
        "closed": turn.closed,
        "usage": dict(turn.usage),
        "record": dict(turn.record),
        "since": turn.since,
    }


def _item(item: Item, turn: Turn) -> dict[str, Any]:
    """Cell and epoch are the turn's, repeated for those who read the document."""
    facts = {"seq": item.seq, "turn": item.turn, "cell": turn.cell, "epoch": turn.epoch, "time": item.time}
    facts |= {"hidden": True} if item.message.hidden else {}
    return facts | ({"extra": dict(item.message.extra)} if item.message.extra else {})


def _message(message: Message) -> dict[str, Any]:
    """mistral.rs reads values that are a text or a list of objects, so ``hidden`` and ``extra`` are not among them."""
    body = message.to_json()
    for own in ("hidden", "extra"):
        body.pop(own, None)
    if isinstance(body["content"], list):
        body["content"] = [_part(part) for part in body["content"]]
    return body


def _part(part: dict[str, Any]) -> dict[str, Any]:
    return part | {"type": "image"} if part.get("mime") == transcript_reader.PNG else part


def _images(items: Sequence[Item], small: Mapping[str, bytes]) -> Iterator[str | dict[str, str]]:
    """Base64 where an image first appears; its hash where it is repeated or not inline."""
    seen: set[str] = set()
    for digest in [medium.hash for item in items for medium in item.message.media if _is_image(medium)]:
        yield _base64(small[digest]) if digest in small and digest not in seen else {"hash": digest}
        seen.add(digest)


def _blob(medium: Media, data: bytes | None) -> dict[str, Any]:
    facts = {"mime": medium.mime, "size": medium.size}
    return facts | ({"data": _base64(data)} if data is not None and not _is_image(medium) else {})


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _layout(value: Any, levels: int) -> str:
    """One line per field of the outer levels, so that versions of a document differ where the conversation does."""
    if not levels or not value or not isinstance(value, dict | list):
        return _dumps(value)
    if isinstance(value, list):
        return "[\n" + ",\n".join(_layout(item, levels - 1) for item in value) + "\n]"
    return "{\n" + ",\n".join(f"{_dumps(key)}: {_layout(item, levels - 1)}" for key, item in value.items()) + "\n}"


def _dumps(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text

"""Reads and writes NAME.agent.json: one session as a document that is stored beside a notebook. The functions convert
values to bytes and back, without side effects.

    {"agent_kernel": {"format": 3, "session": {...}, "branches": [...], "segments": [...], "turns": [...],
                      "items": [...], "summaries": [...], "blobs": {HASH: {...}}},
     "messages": [...], "images": [...], "videos": [], "files": []}

The last four keys are mistral.rs's serialized session: ``messages`` of all branches as they were stored, with an
``{"type": "image"}`` part for every PNG, whose base64 stands at the same position in ``images``. Everything that this
format cannot represent is in ``agent_kernel``: the n-th entry of ``items`` belongs to the n-th entry of ``messages``,
and ``segments`` are the parts of the branch tree (``core/session_tree.py``). The namespace is not exported, because it
may be the name of a user. Documents of format 1 have one branch; documents of format 2 have complete rows, format 3
leaves out what follows from the row before (``core/wire/sidecar_rows.py``).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from agent_kernel.core.messages import Media, Message
from agent_kernel.core.session import Item, Turn
from agent_kernel.core.session_tree import Transcript
from agent_kernel.core.wire.sidecar_rows import compact_rows
from agent_kernel.sessions.export import transcript_reader
from agent_kernel.sessions.export.formats import mistralrs, mistralrs_files
from agent_kernel.sessions.export.formats.json_reader import MAX_VALUES, loads
from agent_kernel.sessions.export.formats.message_list import message_to_json
from agent_kernel.sessions.export.formats.mistralrs_videos import PNG
from agent_kernel.sessions.serialization import dumps, fields_to_json

__all__ = ["FORMAT", "INLINE_BYTES", "MAX_BYTES", "Exported", "Transcript", "export", "facts", "parse"]

FORMAT = transcript_reader.FORMAT
INLINE_BYTES = 4 * 1024
"""Largest number of bytes of a media object that is stored in the document. Larger media objects become files beside
the notebook, so that the lines of the document stay short, and a picture is not stored again with each change."""
MAX_BYTES = 256 * 2**20
MAX_DEPTH = 220
"""Maximum nesting of lists and objects in a document: the 200 levels that a store accepts in one value, and the levels
around it."""


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported session. ``document`` is its text as bytes. ``files`` holds the media that are stored beside it, by
    file name (their hash, or ``images/HASH.png``). ``media_type`` and ``suffix`` are those of the document.
    ``left_out`` counts, by kind, what the format cannot represent."""

    document: bytes
    files: Mapping[str, bytes] = field(default_factory=dict)
    media_type: str = "application/json"
    suffix: str = ".json"
    left_out: Mapping[str, int] = field(default_factory=dict)


def export(transcript: Transcript, *, inline_bytes: int | None = INLINE_BYTES) -> Exported:
    """Export the whole session: every branch, turn, item and file. The same session gives the same bytes. Media and
    files of more than ``inline_bytes`` (None: no limit) become ``Exported.files``. Media and files whose bytes are not
    in ``transcript.blobs`` are only named in the document."""
    media = transcript.media
    referenced = media.keys() | {file.hash for file in transcript.files}
    known = {digest: data for digest, data in transcript.blobs.items() if digest in referenced}
    small = {digest: data for digest, data in known.items() if inline_bytes is None or len(data) <= inline_bytes}
    own = {
        "format": FORMAT,
        **facts(transcript),
        "blobs": {digest: _blob(medium, small.get(digest)) for digest, medium in media.items()},
    }
    own = compact_rows(own)
    document = {
        "agent_kernel": own,
        "messages": [_message_to_json(item.message) for item in transcript.items],
        "images": list(_images(transcript.items, small)),
        "videos": [],
        "files": [mistralrs_files.write(file, small.get(file.hash)) for file in transcript.files],
    }
    text = _layout(document, levels=3) + "\n"
    return Exported(text.encode(), {digest: data for digest, data in known.items() if digest not in small})


def parse(
    document: bytes, namespace: str = "local", *, max_bytes: int = MAX_BYTES, max_values: int = MAX_VALUES
) -> Transcript:
    """Parse a document that ``export`` wrote, in the current format or in format 1, or a session that mistral.rs
    serialized. The result equals the exported transcript except for the namespace and the bytes of media in files. A
    session of mistral.rs, whose values may be plain or wrapped in an Either, has no id, times or turns: its id becomes
    ``imported``, and each user message begins a turn.

    Nothing in the document is trusted: sizes, depth, types, ids, hashes, numbering, the tree and the pairing of calls
    and results are checked. Raises InvalidRequest, which names the position in the document.
    """
    fields = loads(document, max_bytes, MAX_DEPTH, max_values)
    is_own = transcript_reader.is_own(fields)
    return transcript_reader.read_fields(fields, namespace) if is_own else mistralrs.read(fields, namespace)


def facts(transcript: Transcript) -> dict[str, Any]:
    """Return everything in the transcript except its messages, in the form that ``transcript_reader.build_transcript``
    reads."""
    session, tree = transcript.session, transcript.tree
    by_id = {turn.id: turn for turn in transcript.turns}
    return {
        # ``accessed``, ``last_seq``, ``turn_count`` and the ids of summaries are not exported, because they are valid
        # in this store only.
        "session": {"id": session.key.id, **fields_to_json(session, "key", "accessed", "last_seq", "turn_count")},
        "branches": [
            # The other fields of a branch can be computed from the tree.
            {**fields_to_json(branch, "since", "head", "turns", "current"), "segment": tree.ends[branch.name]}
            for branch in transcript.branches
        ],
        "segments": [asdict(segment) for segment in tree.segments],
        "turns": [{**fields_to_json(turn, "key"), "segment": tree.turns.get(turn.id, 0)} for turn in transcript.turns],
        "items": [_item_to_json(item, by_id[item.turn]) for item in transcript.items],
        "summaries": [fields_to_json(summary, "key", "id") for summary in transcript.summaries],
    }


def _item_to_json(item: Item, turn: Turn) -> dict[str, Any]:
    """Return an item as JSON, without its message. The cell and the epoch of its turn are repeated in each item for
    human readers; ``parse`` ignores them."""
    body = {"seq": item.seq, "turn": item.turn, "cell": turn.cell, "epoch": turn.epoch, "time": item.time}
    body |= {"hidden": True} if item.message.hidden else {}
    return body | ({"extra": dict(item.message.extra)} if item.message.extra else {})


def _message_to_json(message: Message) -> dict[str, Any]:
    body = message_to_json(message)
    if isinstance(body["content"], list):
        body["content"] = [part | {"type": "image"} if part.get("mime") == PNG else part for part in body["content"]]
    return body


def _images(items: tuple[Item, ...], small: Mapping[str, bytes]) -> Iterator[str | dict[str, str]]:
    """Yield an entry of ``images`` for every PNG in the items: its base64 where the image first appears, and an object
    with its hash where it is repeated or not in ``small``."""
    seen: set[str] = set()
    for digest in [medium.hash for item in items for medium in item.message.media if medium.mime == PNG]:
        yield _base64(small[digest]) if digest in small and digest not in seen else {"hash": digest}
        seen.add(digest)


def _blob(medium: Media, data: bytes | None) -> dict[str, Any]:
    body = {"mime": medium.mime, "size": medium.size}
    return body | ({"data": _base64(data)} if data is not None and medium.mime != PNG else {})


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _layout(value: Any, levels: int) -> str:
    """Serialize a JSON value. Every entry of the outermost ``levels`` levels begins on a line of its own, so that a
    diff shows where the conversation changed."""
    if not levels or not value or not isinstance(value, dict | list):
        return dumps(value)
    if isinstance(value, list):
        return "[\n" + ",\n".join(_layout(item, levels - 1) for item in value) + "\n]"
    return "{\n" + ",\n".join(f"{dumps(key)}: {_layout(item, levels - 1)}" for key, item in value.items()) + "\n}"

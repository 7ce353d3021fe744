"""NAME.agent.json as a kernel reads it: turns with their answers, on the branch that was shown last.

Standard library only, and nothing in the file is trusted: what does not have the shape of a document is an error in a
line. The store's own reader (``sessions/transcript_reader.py``) checks more, and is not loaded in a person's kernel.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_kernel.core.messages import Message
from agent_kernel.notebook.kernel.short_errors import AgentError

SUFFIX = ".agent.json"
MAX_BYTES = 128 * 2**20
MAX_MEDIUM = 64 * 2**20
PNG = "image/png"
END = 2**62
BRACES = re.compile(r"\{\s*([^\W\d]\w*)\s*\}")
HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Said:
    """One turn that was answered. ``code`` is what its calls were given, by call; ``numbers`` those of its answer."""

    turn: str
    cell: str
    where: str
    model: str
    closed: float
    prompt: str
    messages: tuple[Message, ...]
    code: Mapping[str, str]
    numbers: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Document:
    """``turns`` in the order in which they were asked, those of other branches last."""

    path: Path
    session: str
    turns: tuple[Said, ...]
    inline: Mapping[str, str] = field(repr=False)

    def find(self, prompt: str, cell: str, time: int) -> Said | None:
        """The newest answer to this prompt in this cell; where no cell has that id, the answer to the prompt when it is
        met for the ``time``-th time (the last one, when it was not asked so often)."""
        same = [said for said in self.turns if asked(said.prompt) == asked(prompt)]
        mine = [said for said in same if said.cell == cell]
        if mine:
            return mine[-1]
        return same[min(time, len(same)) - 1] if same else None

    def medium(self, digest: str) -> bytes | None:
        """From the document, or from the file of that name beside it."""
        if HASH.fullmatch(digest) is None:
            return None
        if digest in self.inline:
            try:
                return base64.b64decode(self.inline[digest], validate=True)
            except (binascii.Error, ValueError):
                return None
        beside = self.path.with_name(self.path.name.removesuffix(".json")) / digest
        if beside.parent.is_symlink() or beside.is_symlink() or not beside.is_file():
            return None
        return beside.read_bytes() if beside.stat().st_size <= MAX_MEDIUM else None


def asked(prompt: str) -> str:
    """A prompt as it is compared: variables stand in braces in a cell, and are stored without."""
    return " ".join(BRACES.sub(r"\1", prompt).split())


def read(path: Path) -> Document:
    """Raises AgentError for what is no document of ours."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise AgentError(f"{path.name} has more than {MAX_BYTES >> 20} MB.")
        return _document(path, json.loads(path.read_bytes()))
    except OSError as error:
        raise AgentError(f"{path} can not be read: {error.strerror}.") from None
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        raise AgentError(f"{path.name} is no conversation that this version can read.") from None


def _document(path: Path, body: Mapping[str, Any]) -> Document:
    own = body["agent_kernel"]
    messages = [Message.from_json(_plain(one)) for one in body["messages"]]
    of_turn: dict[str, list[Message]] = {}
    for item, message in zip(own["items"], messages, strict=True):
        of_turn.setdefault(str(item["turn"]), []).append(message)
    until = _way(own)
    turns = [one for one in own["turns"] if one["state"] == "committed"]
    shown = [one for one in turns if one["since"] < until.get(one["segment"], -1)]
    ordered = [*shown, *(one for one in turns if one not in shown)]
    said = tuple(_said(one, of_turn.get(str(one["id"]), [])) for one in ordered)
    return Document(path, str(own["session"]["id"]), said, dict(_inline(body, own, messages)))


def _plain(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Pictures are called image in a document, for others who read it."""
    content = body.get("content")
    if not isinstance(content, list):
        return body
    return {**body, "content": [{**part, "type": "media"} if "hash" in part else part for part in content]}


def _way(own: Mapping[str, Any]) -> dict[int, int]:
    """segment -> up to which item the current branch shows it."""
    parents = {int(one["id"]): (int(one["parent"]), int(one["since"])) for one in own["segments"]}
    ends = {one["name"]: int(one["segment"]) for one in own["branches"]}
    at, until = ends.get(own["session"]["branch"], 0), END
    way = {at: until}
    while at and len(way) <= len(parents) + 1:
        at, since = parents[at]
        until = min(until, since)
        way[at] = until
    return way


def _said(turn: Mapping[str, Any], messages: list[Message]) -> Said:
    prompt = next((message.text for message in messages if message.role == "user" and not message.hidden), "")
    code = {call.id: _code(call.arguments) for message in messages for call in message.calls}
    answer = next((message.text for message in reversed(messages) if message.role == "assistant"), "")
    return Said(
        str(turn["id"]),
        str(turn["cell"]),
        str(turn["where"]),
        str(turn["model"]),
        float(turn["closed"] or 0),
        prompt,
        tuple(message for message in messages if message.role != "system" and not message.hidden),
        code,
        tuple(_numbers(turn["record"].get("numbers"), answer)),
    )


def _code(arguments: Mapping[str, Any]) -> str:
    code = arguments.get("code")
    return code if isinstance(code, str) else "\n".join(f"{name} = {value!r}" for name, value in arguments.items())


def _numbers(told: Any, answer: str) -> Iterator[Mapping[str, Any]]:
    for one in told if isinstance(told, list) else ():
        match one:
            case [int(start), int(end), str(status), *_] if 0 <= start < end <= len(answer):
                yield {"text": answer[start:end], "status": status}


def _inline(body: Mapping[str, Any], own: Mapping[str, Any], messages: list[Message]) -> Iterator[tuple[str, str]]:
    """(hash, base64) of media in the document; PNG pictures stand apart, in the order in which they are named."""
    for digest, blob in own["blobs"].items():
        if isinstance(blob.get("data"), str):
            yield str(digest), blob["data"]
    named = [medium.hash for message in messages for medium in message.media if medium.mime == PNG]
    for digest, image in zip(named, body.get("images") or (), strict=False):
        if isinstance(image, str):
            yield digest, image

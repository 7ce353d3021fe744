"""What is said in a turn: messages, their parts, tool calls and results, and what they cost.

Frozen values that know nothing of storage or wire; ``to_json`` gives the OpenAI chat shape (a superset of mistral.rs's
serialized messages), in which media are named by hash and never inlined.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Status: TypeAlias = Literal["success", "error", "denied", "timeout", "interrupted"]
MAX_ARGUMENT_DEPTH = 100
"""Levels of lists and objects in the arguments of a call."""
_CONTAINERS = (dict, list, tuple)


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Media:
    """Bytes with a MIME type, named by the SHA-256 of the bytes; ``data`` is None when it is stored elsewhere."""

    mime: str
    hash: str
    size: int
    data: bytes | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, mime: str, data: bytes) -> Media:
        return cls(mime, hashlib.sha256(data).hexdigest(), len(data), data)


Part: TypeAlias = Text | Media
VISIBLE_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "image/tiff"})
"""Images that models are shown; of videos they get frames."""


def is_visible_media(mime: str) -> bool:
    """Whether a model that sees can be shown this kind of media."""
    return mime in VISIBLE_IMAGE_TYPES or mime.startswith("video/")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model asked for. ``arguments`` is a JSON object; what could not be parsed stands under ``_raw``."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    ``status`` is set on tool results and, as ``interrupted``, on an assistant message that was cut short.
    ``hidden`` marks the volatile context of a turn: the model reads it, people are not shown it.
    ``extra`` is what another program said in its own shape, by the name of that shape: kept as it is, JSON only, and
    shown to nobody who does not know it.
    """

    role: Role
    parts: tuple[Part, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    call_id: str | None = None
    name: str | None = None
    status: Status | None = None
    hidden: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def media(self) -> tuple[Media, ...]:
        return tuple(part for part in self.parts if isinstance(part, Media))

    def with_status(self, status: Status) -> Message:
        return replace(self, status=status)

    def to_json(self) -> dict[str, Any]:
        """Keys without a value are left out; text alone is a string, with media a list of parts."""
        body: dict[str, Any] = {"role": self.role, "content": self.text}
        if self.media:
            body["content"] = [_part_to_json(part) for part in self.parts]
        if self.calls:
            body["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
                for call in self.calls
            ]
        optional = {
            "reasoning_content": self.reasoning,
            "tool_call_id": self.call_id,
            "name": self.name,
            "status": self.status,
            "hidden": self.hidden,
            "extra": dict(self.extra),
        }
        return body | {key: value for key, value in optional.items() if value}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Message:
        """Accepts what ``to_json`` gives and OpenAI's own shape (``arguments`` as a JSON string)."""
        content = body.get("content") or ""
        parts = (Text(content),) if isinstance(content, str) else tuple(_part_from_json(part) for part in content)
        return cls(
            role=body["role"],
            parts=tuple(part for part in parts if part != Text("")),
            calls=tuple(_call_from_json(call) for call in body.get("tool_calls") or ()),
            reasoning=body.get("reasoning_content") or "",
            call_id=body.get("tool_call_id"),
            name=body.get("name"),
            status=body.get("status"),
            hidden=bool(body.get("hidden")),
            extra=body.get("extra") or {},
        )


def user(text: str, media: Iterable[Media] = (), *, hidden: bool = False) -> Message:
    return Message("user", (Text(text), *media), hidden=hidden)


def assistant(text: str, calls: Iterable[ToolCall] = (), reasoning: str = "") -> Message:
    return Message("assistant", (Text(text),) if text else (), tuple(calls), reasoning)


def system(text: str) -> Message:
    return Message("system", (Text(text),))


def replace_media_with_note(message: Message) -> Message:
    """With a note in the place of its media, for a reader that can not see them. Tables and charts of a tool's result
    are in its text already."""
    if not message.media:
        return message
    count = sum(is_visible_media(medium.mime) for medium in message.media)
    note = f"[{count} image(s) shown to the person]" if count else ""
    if message.role == "user":
        note = f"[{len(message.media)} image(s) or video(s) attached; this model can not see them]"
    text = f"{message.text}\n{note}".strip()
    return replace(message, parts=(Text(text),))


def tool_result(call: ToolCall, text: str, status: Status, media: Iterable[Media] = ()) -> Message:
    return Message("tool", (Text(text), *media), call_id=call.id, name=call.name, status=status)


def parse_arguments(raw: str) -> dict[str, Any]:
    """Arguments as the model wrote them; text that is no JSON object is kept under ``_raw``, never dropped.

    So is what a store would refuse: NaN, infinity (also written 1e999) and more than MAX_ARGUMENT_DEPTH levels.
    """
    try:
        value = json.loads(raw, strict=False)
        storable = not is_too_deep(value, MAX_ARGUMENT_DEPTH) and bool(json.dumps(value, allow_nan=False))
    except (ValueError, RecursionError):
        return {"_raw": raw}
    return value if storable and isinstance(value, dict) else {"_raw": raw}


def is_too_deep(value: Any, levels: int) -> bool:
    """True when lists and objects nest deeper than ``levels`` (a value that contains itself does)."""
    layer = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(levels + 1):
        if not layer:
            return False
        children = [child for item in layer for child in (item.values() if isinstance(item, dict) else item)]
        layer = list({id(child): child for child in children if isinstance(child, _CONTAINERS)}.values())
    return True


def _part_to_json(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "media", "mime": part.mime, "hash": part.hash, "size": part.size}


def _part_from_json(body: Mapping[str, Any]) -> Part:
    if body.get("type") == "text":
        return Text(body["text"])
    return Media(body["mime"], body["hash"], body["size"])


def _call_from_json(body: Mapping[str, Any]) -> ToolCall:
    function = body["function"]
    arguments = function.get("arguments") or {}
    parsed = parse_arguments(arguments) if isinstance(arguments, str) else arguments
    return ToolCall(body["id"], function["name"], parsed)


def shorten(text: str, limit: int) -> str:
    """Head and tail of a long text, with what is missing between them said."""
    if len(text) <= limit:
        return text
    head = text[: limit * 2 // 3]
    tail = text[-(limit - len(head)) :]
    return f"{head}\n[... {len(text) - len(head) - len(tail)} characters left out ...]\n{tail}"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a round or a turn cost. Tokens are the model's; times are seconds of wall clock.

    ``reused_tokens`` of ``prompt_tokens`` were not computed again (KV cache prefix). ``first_token_s`` is the time from
    the request to its first token; a sum keeps that of the first round. ``decode_s`` is the time from first tokens to
    last ones. ``estimated``: at least one count of tokens is a guess, because the engine does not tell. ``turn_s`` is
    how long the whole turn took, tools included, without the time in which it waited for a person; 0 of a round.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    reused_tokens: int = 0
    first_token_s: float = 0.0
    seconds: float = 0.0
    decode_s: float = 0.0
    estimated: bool = False
    turn_s: float = field(default=0.0, compare=False)

    @property
    def tokens_per_s(self) -> float:
        """While decoding; 0 when nothing was decoded."""
        return self.completion_tokens / self.decode_s if self.decode_s else 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.reused_tokens + other.reused_tokens,
            self.first_token_s or other.first_token_s,
            self.seconds + other.seconds,
            self.decode_s + other.decode_s,
            self.estimated or other.estimated,
            self.turn_s + other.turn_s,
        )

    def to_json(self) -> dict[str, float]:
        """``estimated`` only where it is true, ``turn_s`` only of a turn."""
        body: dict[str, float] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "reused_tokens": self.reused_tokens,
            "first_token_s": round(self.first_token_s, 4),
            "seconds": round(self.seconds, 4),
            "decode_s": round(self.decode_s, 4),
            "tokens_per_s": round(self.tokens_per_s, 1),
        }
        body |= {"turn_s": round(self.turn_s, 4)} if self.turn_s else {}
        return body | {"estimated": True} if self.estimated else body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Usage:
        """Accepts what ``to_json`` gives, also as older versions gave it."""
        return cls(**{item.name: body[item.name] for item in fields(cls) if item.name in body})

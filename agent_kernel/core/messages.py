"""Defines the content of a turn: messages, their parts, tool calls and results, and token usage.

All values are frozen and independent of how they are stored and sent. ``to_json`` returns the OpenAI chat form (a
superset of mistral.rs's serialized messages), which contains the hashes of media, never their bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Status: TypeAlias = Literal["success", "error", "denied", "timeout", "interrupted"]
IMAGE_NOTE = r"\[\d+ (?:figure|image)\(s\) shown(?: to the person)?\]"
"""Pattern of the line of a result that tells the model how many images the user sees. The panel has it too, in
``ui/src/turn/labels.ts``."""
MAX_ARGUMENT_DEPTH = 100
"""Maximum nesting of lists and objects in the arguments of a call."""
CORRECTION = "-fix"
"""Suffix of a call id. A call with this suffix repeats a failed call with a program that agent-kernel corrected without
asking a model."""
VARIABLES = "Variables"
"""Title of the hidden note that describes the variables that a prompt names."""
DRAFT_VARIABLES = "Variables of the draft"
"""Title of the note that describes the variables in the draft in which the code of a turn runs. The model reads this
note in place of the note VARIABLES, which describes the variables in the kernel, and without this title, because the
text of the note begins with a title of its own. When two requests are compared, the note about the kernel counts,
because the draft of the stored turn no longer exists."""
_CONTAINERS = (dict, list, tuple)


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Media:
    """A media object, such as an image: its MIME type, the SHA-256 and the size of its bytes, and the bytes (``data``),
    which are None if they are stored elsewhere."""

    mime: str
    hash: str
    size: int
    data: bytes | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, mime: str, data: bytes) -> Media:
        return cls(mime, hashlib.sha256(data).hexdigest(), len(data), data)


Part: TypeAlias = Text | Media
VISIBLE_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "image/tiff"})
"""Image types that are sent to vision models; videos are sent as frames."""


def is_visible_media(mime: str) -> bool:
    """Return whether a vision model can be shown media of this type."""
    return mime in VISIBLE_IMAGE_TYPES or mime.startswith("video/")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of the model; ``arguments`` is a JSON object. If the model's text could not be parsed, the object
    contains the text under ``_raw``."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    ``status`` is set on tool results; an assistant message that was cut short has the status ``interrupted``.
    ``hidden`` is true for context of a turn that the model reads but people are not shown. ``extra`` holds fields of
    another program's message format as JSON, under the name of that format. They are stored unchanged, and code that
    does not know the format ignores them.
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
        # Nearly every message is one text, and stores and engines read these two properties several times a message.
        # A list is built faster than a generator.
        if len(self.parts) == 1 and isinstance(only := self.parts[0], Text):
            return only.text
        return "".join([part.text for part in self.parts if isinstance(part, Text)])

    @property
    def media(self) -> tuple[Media, ...]:
        if len(self.parts) == 1 and isinstance(self.parts[0], Text):
            return ()
        return tuple([part for part in self.parts if isinstance(part, Media)])

    def with_status(self, status: Status) -> Message:
        """Return a copy with this status."""
        return replace(self, status=status)

    def to_json(self) -> dict[str, Any]:
        """Return the message as JSON. Empty keys are omitted. The content is a string, or a list of parts if there are
        media."""
        body: dict[str, Any] = {"role": self.role, "content": self.text}
        if self.media:
            body["content"] = [_part_to_json(part) for part in self.parts]
        if self.calls:
            body["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
                for call in self.calls
            ]
        if self.reasoning:
            body["reasoning_content"] = self.reasoning
        if self.call_id:
            body["tool_call_id"] = self.call_id
        if self.name:
            body["name"] = self.name
        if self.status:
            body["status"] = self.status
        if self.hidden:
            body["hidden"] = self.hidden
        if self.extra:
            body["extra"] = dict(self.extra)
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Message:
        """Read the output of ``to_json``, or OpenAI's own form with ``arguments`` as a JSON string."""
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
    """Return the message with each media object replaced by a text note, for a model without vision.

    Tables and charts need no note: the text of their tool result already contains them.
    """
    if not message.media:
        return message
    count = sum(is_visible_media(medium.mime) for medium in message.media)
    note = f"[{count} image(s) shown to the person]" if count else ""
    if message.role == "user":
        note = f"[{len(message.media)} image(s) or video(s) attached; this model cannot see them]"
    text = f"{message.text}\n{note}".strip()
    return replace(message, parts=(Text(text),))


def figures_note(count: int) -> str:
    """Return the line of a result that tells the model that the user sees ``count`` figures which its code has drawn;
    an empty string if there are none."""
    return f"[{count} figure(s) shown]" if count else ""


def images_note(count: int) -> str:
    """Return the same line for the images of another tool."""
    return f"[{count} image(s) shown]" if count else ""


def without_image_notes(text: str) -> str:
    """Return the text of a result without these lines, for a reader who sees the images."""
    return re.sub(rf"^{IMAGE_NOTE}$\n?", "", text, flags=re.MULTILINE).rstrip("\n")


def tool_result(call: ToolCall, text: str, status: Status, media: Iterable[Media] = ()) -> Message:
    return Message("tool", (Text(text), *media), call_id=call.id, name=call.name, status=status)


def correction_id(call_id: str) -> str:
    """Return the id of the call that runs the program of the call ``call_id`` with a correction. The id itself marks
    the call as a correction, because every place that stores or receives a call has its id."""
    return f"{call_id}{CORRECTION}"


def corrected_call(call_id: str) -> str:
    """Return the id of the call whose program the call ``call_id`` corrects; an empty string if it corrects none."""
    return call_id.removesuffix(CORRECTION) if call_id.endswith(CORRECTION) else ""


def strict_call_id(call_id: str) -> str:
    """Return an id of nine letters and digits that is derived from ``call_id``. Equal ids give equal results, so calls
    and results stay paired. Mistral's servers, vLLM with Mistral's tokenizers, and some chat templates refuse any other
    form."""
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]


def parse_arguments(raw: str) -> dict[str, Any]:
    """Parse the arguments that the model wrote.

    Text that is not a JSON object is returned unchanged under ``_raw``. This also applies to values that a store would
    refuse: NaN, infinity (also written as 1e999), and more than MAX_ARGUMENT_DEPTH levels.
    """
    try:
        value = json.loads(raw, strict=False)
        storable = not is_too_deep(value, MAX_ARGUMENT_DEPTH) and bool(json.dumps(value, allow_nan=False))
    except (ValueError, RecursionError):
        return {"_raw": raw}
    return value if storable and isinstance(value, dict) else {"_raw": raw}


def is_too_deep(value: Any, levels: int) -> bool:
    """Return whether lists and objects nest deeper than ``levels``; true for a value that contains itself."""
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
    """Return ``text``, cut to ``limit`` characters if it is longer: its middle is replaced by a note, in addition to
    these characters, of how many were left out."""
    if len(text) <= limit:
        return text
    head = text[: limit * 2 // 3]
    tail = text[-(limit - len(head)) :]
    return f"{head}\n[... {len(text) - len(head) - len(tail)} characters left out ...]\n{tail}"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts and times of a round or a turn. Times are seconds of wall clock.

    ``reused_tokens`` is the part of ``prompt_tokens`` that was in the KV cache and not computed again.
    ``first_token_s`` is the time from the request to its first token; the sum over a turn keeps the value of the first
    round. ``decode_s`` is the time from the first token to the last. ``estimated`` is true if at least one token count
    is a guess because the engine does not report it. ``turn_s`` is the duration of the whole turn including tools and
    excluding the time spent waiting for a person; it is 0 for a single round.
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
        """Decoding speed in tokens per second; 0 if nothing was decoded."""
        return self.completion_tokens / self.decode_s if self.decode_s else 0.0

    def __add__(self, other: Usage) -> Usage:
        sums = {item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(self)}
        sums["first_token_s"] = self.first_token_s or other.first_token_s
        sums["estimated"] = self.estimated or other.estimated
        return Usage(**sums)

    def to_json(self) -> dict[str, float]:
        """Return the usage as JSON; ``estimated`` is included only if true, ``turn_s`` only for a turn."""
        counts = ("prompt_tokens", "completion_tokens", "reused_tokens")
        times = ("first_token_s", "seconds", "decode_s")
        body: dict[str, float] = {name: getattr(self, name) for name in counts}
        body |= {name: round(getattr(self, name), 4) for name in times}
        body["tokens_per_s"] = round(self.tokens_per_s, 1)
        body |= {"turn_s": round(self.turn_s, 4)} if self.turn_s else {}
        return body | {"estimated": True} if self.estimated else body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Usage:
        """Read the output of ``to_json``, also the output of older versions."""
        return cls(**{item.name: body[item.name] for item in fields(cls) if item.name in body})

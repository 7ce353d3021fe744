"""What the model sees, which is not what is stored: instructions, then as much history as fits, then this turn.

Older turns leave in steps of two fifths of the budget, not one by one: between two steps the beginning of the prompt
stays as it was, so its KV cache prefix is reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from agent_kernel.messages import Media, Message, Part, Text, in_words, is_seen, system, user

CHARS_PER_TOKEN = 3.0
"""Low for English and code (about 4), so that an estimate errs towards fitting."""
RESERVED_TOKENS = 1024
"""Left for the answer."""
STEP = 0.4
PICTURES = 16
PICTURE_TOKENS = 768
"""What models of this size make of one picture: 576 (LLaVA 1.5), 256 (Gemma 3), up to about 1,100 (Idefics 3)."""
PICTURE_SHARE = 0.25
"""Of the model's tokens, for all pictures together."""
VIDEO = 8
"""Frames of a video that a model is shown count as so many pictures."""
MEDIA_BYTES = 24 * 2**20
LEFT_OUT = "[image shown earlier, left out]"
INSTRUCTIONS = "You are an assistant inside a Jupyter notebook."


@dataclass(frozen=True, slots=True)
class View:
    """``messages`` for the engine; ``dropped`` older messages did not fit."""

    messages: tuple[Message, ...]
    dropped: int


class Context:
    """``context_length`` in tokens, 0 = unknown (no limit is applied). ``sees``: the model is shown pictures and
    videos, the newest that fit into a share of its tokens and into MEDIA_BYTES; else it is told of them in words."""

    def __init__(self, context_length: int, instructions: str = INSTRUCTIONS, *, sees: bool = False) -> None:
        self._budget = int(max(0, context_length - RESERVED_TOKENS) * CHARS_PER_TOKEN) if context_length else 0
        self._instructions = instructions
        self._sees = sees
        fitting = int(context_length * PICTURE_SHARE) // PICTURE_TOKENS if context_length else PICTURES
        self._pictures = max(1, min(PICTURES, fitting))

    def view(self, history: Sequence[Message], current: Sequence[Message]) -> View:
        """``history`` are the messages of earlier turns, ``current`` those of this one, which always stay."""
        both = [*history, *current]
        both = _newest_shown(both, self._pictures) if self._sees else [in_words(message) for message in both]
        history, current = both[: len(history)], both[len(history) :]
        pictures = min(self._pictures, _weight(both)) * PICTURE_TOKENS * CHARS_PER_TOKEN
        room = self._budget - len(self._instructions) - _size(current) - int(pictures)
        start = _first_kept(history, room) if self._budget else 0
        kept = [_readable(message) for message in [*history[start:], *current]]
        head = [system(self._instructions)] if self._instructions else []
        if start:
            head.append(user(f"({start} older messages of this conversation are not shown.)", hidden=True))
        return View((*head, *kept), start)


def _first_kept(history: Sequence[Message], room: int) -> int:
    """Index of the first message kept: a turn's beginning, moved on in steps until the rest fits into ``room``."""
    total = _size(history)
    if total <= room:
        return 0
    step = max(1, int(room * STEP))
    cut = -(-(total - room) // step) * step  # characters to leave out, rounded up to whole steps
    passed = 0
    for index, message in enumerate(history):
        if passed >= cut and _opens_turn(history, index):
            return index
        passed += _size([message])
    return len(history)


def _opens_turn(history: Sequence[Message], index: int) -> bool:
    """A turn begins with its hidden context if it has one, else with what the person said."""
    follows_hidden = index > 0 and history[index - 1].hidden
    return history[index].role == "user" and not follows_hidden


def _size(messages: Sequence[Message]) -> int:
    """Characters, calls and a constant for the template's own words included."""
    return sum(
        len(message.text) + len(message.reasoning) + sum(len(str(call.arguments)) for call in message.calls) + 24
        for message in messages
    )


def _readable(message: Message) -> Message:
    """An answer that was cut short says so; reasoning of the past is not shown again."""
    parts = message.parts
    if message.role == "assistant" and message.status == "interrupted":
        parts = (Text(f"{message.text}\n(stopped here)".strip()), *message.media)
    return replace(message, parts=parts, reasoning="")


def _weight(messages: Sequence[Message]) -> int:
    return sum(_counts(medium) for message in messages for medium in message.media)


def _counts(medium: Media) -> int:
    """As so many pictures; what no model is shown counts nothing."""
    if not is_seen(medium.mime):
        return 0
    return VIDEO if medium.mime.startswith("video/") else 1


def _newest_shown(messages: Sequence[Message], pictures: int) -> list[Message]:
    """The last ``pictures`` stay. The others leave by halves of that, as older turns do: for some turns the beginning
    of the prompt is the same."""
    step = max(1, pictures // 2)
    surplus = -(-max(0, _weight(messages) - pictures) // step) * step
    shown: list[Message] = []
    passed = 0
    for message, size_after in zip(messages, _bytes_from(messages), strict=True):
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, Media) and is_seen(part.mime):
                passed += _counts(part)
                leaves = passed <= surplus or size_after > MEDIA_BYTES
                parts.append(Text(f"\n{LEFT_OUT}") if leaves else part)
            elif isinstance(part, Media):
                parts.append(Text(f"\n[{part.mime}, {part.size} bytes, shown to the person]"))
            else:
                parts.append(part)
        shown.append(replace(message, parts=tuple(parts)))
    return shown


def _bytes_from(messages: Sequence[Message]) -> list[int]:
    """For each message the bytes of its media and of all after it."""
    sizes = [sum(medium.size for medium in message.media if is_seen(medium.mime)) for message in messages]
    return [*accumulate(reversed(sizes))][::-1]

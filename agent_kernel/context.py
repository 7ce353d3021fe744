"""What the model sees, which is not what is stored: instructions, then as much history as fits, then this turn.

Older turns leave in steps of two fifths of the budget, not one by one: between two steps the beginning of the prompt
stays as it was, so its KV cache prefix is reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent_kernel.messages import Message, Text, system, user

CHARS_PER_TOKEN = 3.0
"""Low for English and code (about 4), so that an estimate errs towards fitting."""
RESERVED_TOKENS = 1024
"""Left for the answer."""
STEP = 0.4
INSTRUCTIONS = "You are an assistant inside a Jupyter notebook."


@dataclass(frozen=True, slots=True)
class View:
    """``messages`` for the engine; ``dropped`` older messages did not fit."""

    messages: tuple[Message, ...]
    dropped: int


class Context:
    """``context_length`` in tokens, 0 = unknown (no limit is applied)."""

    def __init__(self, context_length: int, instructions: str = INSTRUCTIONS) -> None:
        self._budget = int(max(0, context_length - RESERVED_TOKENS) * CHARS_PER_TOKEN) if context_length else 0
        self._instructions = instructions

    def view(self, history: Sequence[Message], current: Sequence[Message]) -> View:
        """``history`` are the messages of earlier turns, ``current`` those of this one, which always stay."""
        room = self._budget - len(self._instructions) - _size(current)
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
    """An answer that was cut short says so; reasoning of the past is not shown again; media become a note."""
    text = message.text
    if message.role == "assistant" and message.status == "interrupted":
        text = f"{text}\n(stopped here)".strip()
    if message.media:
        text = f"{text}\n[{len(message.media)} image(s) shown to the person]".strip()
    return replace(message, parts=(Text(text),) if text else (), reasoning="")

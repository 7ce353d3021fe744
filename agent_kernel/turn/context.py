"""Builds the messages that the model sees, which differ from the stored ones: instructions, a summary of the oldest
part, as much of the history as fits, then this turn.

The history shrinks in steps, so that between two steps the beginning of the prompt stays the same and its KV cache
prefix is reused. First, long tool results of older turns are shortened; then older turns are left out. Recent turns
stay unchanged. A note in the prompt informs the model about either change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from agent_kernel.core import token_estimate
from agent_kernel.core.messages import (
    Media,
    Message,
    Part,
    Text,
    is_visible_media,
    replace_media_with_note,
    shorten,
    system,
    user,
)
from agent_kernel.core.token_estimate import CHARS_PER_TOKEN
from agent_kernel.sessions.export import responses_items

STEP = 0.3
"""When the budget is full, the recent turns shrink in steps of this share of the budget."""
RECENT = 0.75
"""Maximum share of the budget for the recent turns once the budget is full. The rest is for older turns with shortened
results."""
OLD_RESULT = 600
"""Characters that are kept of a tool result in an older turn."""
PICTURES = 16
PICTURE_TOKENS = 768
"""Estimated tokens of one image: 576 for LLaVA 1.5, 256 for Gemma 3, up to about 1,100 for Idefics 3."""
PICTURE_SHARE = 0.25
"""Share of the model's tokens for all images together."""
VIDEO = 8
"""Number of images that one video counts as. The model is shown several frames of the video."""
MEDIA_BYTES = 24 * 2**20
LEFT_OUT = "[image shown earlier, left out]"
SUMMARY = "Summary of this conversation up to here; the messages it stands for are kept, but not shown to you:"
INSTRUCTIONS = (
    "You are agent-kernel, an open-source assistant inside a Jupyter notebook, made by the agent-kernel project."
)
"""Instructions at the beginning of the prompt, unless the client sends its own. They state the identity, because a
small model otherwise names the company of its training data."""


@dataclass(frozen=True, slots=True)
class ModelView:
    """The messages for the engine.

    ``dropped`` older messages did not fit, and ``shortened`` tool results lost their middle. ``share`` is the part of
    the budget that the full conversation would take: more than 1 if it does not fit, 0 while that is unknown.
    """

    messages: tuple[Message, ...]
    dropped: int
    shortened: int = 0
    share: float = 0.0


class ContextBuilder:
    """Fits a conversation into the context of a model.

    ``context_length`` is in tokens; 0 means unknown, and no limit is applied. ``sees`` is true if the model can read
    images and videos. Such a model is shown the newest ones, up to a share of its tokens and up to MEDIA_BYTES; other
    media are replaced with text. ``summary`` stands for everything before the history.
    """

    def __init__(
        self, context_length: int, instructions: str = INSTRUCTIONS, *, sees: bool = False, summary: str = ""
    ) -> None:
        self._head = [system(instructions)] if instructions else []
        if summary:
            self._head.append(user(f"{SUMMARY}\n{summary}", hidden=True))
        self._budget = token_estimate.prompt_budget(context_length)
        beside = token_estimate.total_chars(self._head) + token_estimate.message_chars(_note(10**6))
        self._room = max(1, self._budget - beside) if self._budget else 0
        self._sees = sees
        fitting = int(context_length * PICTURE_SHARE) // PICTURE_TOKENS if context_length else PICTURES
        self._pictures = max(1, min(PICTURES, fitting))

    def view(self, history: Sequence[Message], current: Sequence[Message]) -> ModelView:
        """Return what the model sees. ``history`` are earlier messages; ``current`` are those of this turn, which
        always stay."""
        history = responses_items.to_model_history(history)
        both = [*history, *current]
        both = (
            _keep_newest_pictures(both, self._pictures)
            if self._sees
            else [replace_media_with_note(message) for message in both]
        )
        both = [_readable(message) for message in both]
        pictures = int(min(self._pictures, _weight(both)) * PICTURE_TOKENS * CHARS_PER_TOKEN)
        taken = token_estimate.total_chars(both[len(history) :]) + pictures
        seen = _fit_history(both[: len(history)], taken, self._room)
        head = [*self._head, _note(seen.dropped)] if seen.dropped else self._head
        full_chars = token_estimate.total_chars(self._head) + token_estimate.total_chars(both) + pictures
        share = full_chars / self._budget if self._budget else 0.0
        return replace(seen, messages=(*head, *seen.messages, *both[len(history) :]), share=share)


def _fit_history(history: Sequence[Message], taken: int, room: int) -> ModelView:
    """Return the messages of ``history`` that fit into ``room`` characters together with ``taken`` other characters
    (``room`` 0 = all of them).

    The history and the current turn only grow, so the start of the recent turns moves forward in whole steps. Which
    older messages are kept depends only on that start, so the beginning of the prompt stays the same between two steps.
    """
    excess = token_estimate.total_chars(history) + taken - room
    if not room or excess <= 0:
        return ModelView(tuple(history), 0)
    step = max(1, int(room * STEP))
    cut = -(-(excess + room - int(room * RECENT)) // step) * step
    recent = _turn_at(history, cut)
    older = [_short(message) for message in history[:recent]]
    chars_left = room - taken - token_estimate.total_chars(history[recent:])
    start = _first_fitting(older, min(chars_left, room - int(room * RECENT)))
    changed = sum(old is not message for old, message in zip(older[start:], history[start:recent], strict=True))
    return ModelView((*older[start:], *history[recent:]), start, changed)


def _turn_at(history: Sequence[Message], cut: int) -> int:
    """Return the index of the first message that begins a turn and is preceded by at least ``cut`` characters."""
    passed = 0
    for index, message in enumerate(history):
        if passed >= cut and _opens_turn(history, index):
            return index
        passed += token_estimate.message_chars(message)
    return len(history)


def _first_fitting(older: Sequence[Message], room: int) -> int:
    """Return the smallest index in ``older`` at which a turn begins and from which on all messages fit into ``room``
    characters."""
    kept, start = 0, len(older)
    for index in range(len(older) - 1, -1, -1):
        kept += token_estimate.message_chars(older[index])
        if kept > room:
            break
        if _opens_turn(older, index):
            start = index
    return start


def _short(message: Message) -> Message:
    if message.role != "tool" or len(message.text) <= OLD_RESULT + 100:  # the note about the gap takes room too
        return message
    return replace(message, parts=(Text(shorten(message.text, OLD_RESULT)), *message.media))


def _note(dropped: int) -> Message:
    return user(f"({dropped} older messages of this conversation are not shown.)", hidden=True)


def _opens_turn(history: Sequence[Message], index: int) -> bool:
    """Return whether a turn begins at ``index``: at its hidden context if it has one, else at its user message."""
    follows_hidden = index > 0 and history[index - 1].hidden
    return history[index].role == "user" and not follows_hidden


def _readable(message: Message) -> Message:
    """Return the message without reasoning, which is not shown to the model again. An answer that was cut short gets a
    remark that says so."""
    parts = message.parts
    if message.role == "assistant" and message.status == "interrupted":
        parts = (Text(f"{message.text}\n(stopped here)".strip()), *message.media)
    return replace(message, parts=parts, reasoning="")


def _weight(messages: Sequence[Message]) -> int:
    return sum(_counts(medium) for message in messages for medium in message.media)


def _counts(medium: Media) -> int:
    """Return the number of images that a media item counts as; 0 if it is of a type that no model is shown."""
    if not is_visible_media(medium.mime):
        return 0
    return VIDEO if medium.mime.startswith("video/") else 1


def _keep_newest_pictures(messages: Sequence[Message], pictures: int) -> list[Message]:
    """Return the messages with at most ``pictures`` images, the newest ones. Older images are removed in steps of half
    that number, so that the beginning of the prompt stays the same for several turns."""
    step = max(1, pictures // 2)
    surplus = -(-max(0, _weight(messages) - pictures) // step) * step
    result: list[Message] = []
    passed = 0
    for message, size_after in zip(messages, _bytes_from(messages), strict=True):
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, Media) and is_visible_media(part.mime):
                passed += _counts(part)
                leaves = passed <= surplus or size_after > MEDIA_BYTES
                parts.append(Text(f"\n{LEFT_OUT}") if leaves else part)
            elif isinstance(part, Media):
                if not part.mime.endswith("+json"):  # tables and charts are in the text of the result already
                    parts.append(Text(f"\n[{part.mime}, {part.size} bytes, shown to the person]"))
            else:
                parts.append(part)
        result.append(replace(message, parts=tuple(parts)))
    return result


def _bytes_from(messages: Sequence[Message]) -> list[int]:
    """Return, for each message, the number of bytes of its media and of all media after it."""
    sizes = [sum(medium.size for medium in message.media if is_visible_media(medium.mime)) for message in messages]
    return [*accumulate(reversed(sizes))][::-1]

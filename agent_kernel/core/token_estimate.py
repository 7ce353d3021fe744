"""Estimates the length of a conversation for a model, in characters. The functions do no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable

from agent_kernel.core.messages import Message, Usage

CHARS_PER_TOKEN = 3.0
"""Assumed characters per token. It is below the usual value for English and code (about 4), so that a prompt that fits
by this estimate also fits the model."""
RESERVED_TOKENS = 1024
"""Tokens of the context that are reserved for the answer. If the context has fewer than twice as many tokens, half of
it is reserved."""
PER_MESSAGE = 24
"""Assumed number of characters that the chat template adds to each message."""


def message_chars(message: Message) -> int:
    """Return the number of characters of a message, including its calls and the chat template's part. Media are not
    included."""
    chars = len(message.text) + len(message.reasoning)
    return chars + sum(len(str(call.arguments)) for call in message.calls) + PER_MESSAGE


def total_chars(messages: Iterable[Message]) -> int:
    return sum(map(message_chars, messages))


def estimate_usage(messages: Iterable[Message], answer_chars: int, seconds: float = 0.0) -> Usage:
    """Estimate the usage of a model call that was cut off before the engine reported it. ``messages`` were its
    prompt."""
    prompt, answer = (math.ceil(chars / CHARS_PER_TOKEN) for chars in (total_chars(messages), answer_chars))
    return Usage(prompt, answer, seconds=seconds, estimated=True)


def prompt_budget(context_length: int) -> int:
    """Return how many characters a prompt may have for a model with this context length; 0 means that the context
    length is unknown and there is no limit."""
    reserved = min(RESERVED_TOKENS, context_length // 2)
    return int((context_length - reserved) * CHARS_PER_TOKEN)

"""How long a conversation is for a model, estimated in characters. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from agent_kernel.core.messages import Message, Usage

CHARS_PER_TOKEN = 3.0
"""Low for English and code (about 4), so that an estimate errs towards fitting."""
RESERVED_TOKENS = 1024
"""Left for the answer; half of the tokens of a model that has fewer than twice as many."""
PER_MESSAGE = 24
"""Characters for the template's own words."""


def message_chars(message: Message) -> int:
    """Characters of a message, calls and template included; media are counted apart."""
    said = len(message.text) + len(message.reasoning)
    return said + sum(len(str(call.arguments)) for call in message.calls) + PER_MESSAGE


def total_chars(messages: Iterable[Message]) -> int:
    return sum(map(message_chars, messages))


def estimate_usage(messages: Iterable[Message], answer_chars: int, seconds: float = 0.0) -> Usage:
    """What a model call cost whose engine did not tell, because the call was cut off."""
    prompt, answer = (math.ceil(chars / CHARS_PER_TOKEN) for chars in (total_chars(messages), answer_chars))
    return Usage(prompt, answer, seconds=seconds, estimated=True)


def prompt_budget(context_length: int) -> int:
    """Characters that a prompt may have for a model of so many tokens; 0 = unknown, no limit."""
    reserved = min(RESERVED_TOKENS, context_length // 2)
    return int((context_length - reserved) * CHARS_PER_TOKEN)
